"""A producer in a process of its own: encodes first, then sends on a word from stdin, then says how long it took."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from bench import collectives
from bench.figure import seconds
from ingero_mcp.sender import Sender


def main(address: str, count: int, seed: int, connections: int) -> None:
    """Send `count` requests over `connections` connections."""
    bodies = collectives.requests(count, f"node-{seed}", seed)
    print("ready", flush=True)
    sys.stdin.readline()

    def send(share: list[bytes]) -> None:
        with Sender(address) as sender:
            for body in share:
                sender.send("traces", body)

    with ThreadPoolExecutor(connections) as pool:
        elapsed = seconds(lambda: list(pool.map(send, [bodies[place::connections] for place in range(connections)])))
    print(elapsed, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
