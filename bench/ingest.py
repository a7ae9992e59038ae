"""From the wire to the table: what each part costs, and the whole way."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from bench import collectives
from bench.figure import Figure, measure, seconds
from ingero_mcp.clock import now_ns
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.store import open_store
from tests.processes import ServerProcess

_REQUESTS = 40
_END_TO_END = 100


def figures() -> Iterator[Figure]:
    """Decode, insert, the transport alone, and end to end with the acknowledgement after the commit."""
    bodies = collectives.requests(_REQUESTS, "node", seed=1)
    spans = _REQUESTS * collectives.SPANS
    decoder = Decoder()
    yield measure(
        "decode alone",
        "spans/s",
        lambda: spans / seconds(lambda: [decoder.decode("traces", body, Arrival(now_ns())) for body in bodies]),
    )
    batches = [decoder.decode("traces", body, Arrival(now_ns())).batch for body in bodies]
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "insert.duckdb") as store:

        def insert() -> None:
            for future in [store.append(batch) for batch in batches]:
                future.result()

        yield measure("insert alone (grouped commits)", "spans/s", lambda: spans / seconds(insert))
    seeds = count(2)
    with _null_server() as address:
        null = measure("null gRPC, 4 connections", "spans/s", lambda: _sent_per_second(address, next(seeds)))
        yield null
    with tempfile.TemporaryDirectory() as folder, ServerProcess.start(Path(folder) / "all.duckdb") as server:
        whole = measure(
            "end to end, acknowledged after commit, 4 connections",
            "spans/s",
            lambda: _sent_per_second(server.otlp_addr, next(seeds)),
        )
        yield whole
    yield Figure(
        "end to end to null gRPC", whole.value / null.value, "times", whole.low / null.high, whole.high / null.low
    )


@contextmanager
def _null_server() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.null_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()


def _sent_per_second(address: str, seed: int) -> float:
    return _END_TO_END * collectives.SPANS / _send(address, seed)


def _send(address: str, seed: int) -> float:
    command = [sys.executable, "-m", "bench.generator", address, str(_END_TO_END), str(seed), "4"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None and producer.stdout is not None
        producer.stdout.readline()
        producer.stdin.write("go\n")
        producer.stdin.flush()
        return float(producer.stdout.readline())
