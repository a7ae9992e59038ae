"""What greedy queries cost ingestion: how long a batch waits for its acknowledgement, beside them and alone."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles

import httpx2

from bench import collectives
from bench.figure import Figure, seconds
from ingero_mcp.sender import Sender
from tests.processes import ServerProcess
from tests.test_greedy_queries import GREEDY

_BATCHES = 120
_ROUNDS = 3
_ASKERS = 4
# Joins that explode, and long work on texts: they hold no memory, only the processor.
_BUSY = (
    "SELECT count(*) FROM events a JOIN events b ON a.node_id = b.node_id WHERE a.attrs_json || b.span_id LIKE '%z%'",
    "SELECT count(*) FROM events a, events b WHERE regexp_matches(a.attrs_json || b.span_id, '(x+x+)+y')",
)


def figures() -> Iterator[Figure]:
    """p50 and p99 of the acknowledgement in milliseconds, alone and beside four askers, and the ratio."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ("--memory-mib=500", "--query-timeout-s=5")
        with ServerProcess.start(Path(folder) / "greedy.duckdb", *flags) as server, Sender(server.otlp_addr) as sender:
            bodies = iter(collectives.requests(2 * _ROUNDS * _BATCHES, "node", seed=3))
            alone, beside = [], []
            for _ in range(_ROUNDS):
                alone.append(_acknowledged_ms(sender, bodies))
                with _askers(server.url):
                    beside.append(_acknowledged_ms(sender, bodies))
    for name, of in (("p50", median), ("p99", lambda values: quantiles(values, n=100)[98])):
        quiet, busy = [of(one) for one in alone], [of(one) for one in beside]
        yield Figure(f"acknowledgement, {name}, alone", median(quiet), "ms", min(quiet), max(quiet))
        yield Figure(f"acknowledgement, {name}, 4 greedy askers", median(busy), "ms", min(busy), max(busy))
        ratios = [slow / fast for slow, fast in zip(busy, quiet, strict=True)]
        yield Figure(f"acknowledgement, {name}: greedy to alone", median(ratios), "times", min(ratios), max(ratios))


def _acknowledged_ms(sender: Sender, bodies: Iterator[bytes]) -> list[float]:
    return [seconds(lambda: sender.send("traces", next(bodies))) * 1e3 for _ in range(_BATCHES)]


@contextmanager
def _askers(url: str) -> Iterator[None]:
    stop = threading.Event()

    def ask(first: int) -> None:
        statements = cycle([*GREEDY, *_BUSY][first:] + [*GREEDY, *_BUSY][:first])
        with httpx2.Client(timeout=120, trust_env=False) as client:
            while not stop.is_set():
                client.post(f"{url}/api/v1/query", json={"sql": next(statements), "limit": 1})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(_ASKERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
