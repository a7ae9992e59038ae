"""From the wire to the table: what each part costs, and the whole way."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import grpc

from bench import collectives
from bench.figure import Figure, measure, seconds
from ingero_mcp.clock import now_ns
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.sender import Sender
from ingero_mcp.store import open_store
from tests.processes import ServerProcess

_REQUESTS = 40
_END_TO_END = 100


def figures() -> Iterator[Figure]:
    """Null gRPC, decode, insert, and end to end with the acknowledgement after the commit."""
    bodies = collectives.requests(_REQUESTS, "node", seed=1)
    spans = _REQUESTS * collectives.SPANS
    yield measure("null gRPC server, same requests", "spans/s", lambda: spans / seconds(lambda: _null(bodies)))
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
    with tempfile.TemporaryDirectory() as folder, ServerProcess.start(Path(folder) / "all.duckdb") as server:
        seeds = count(2)
        yield measure(
            "end to end, acknowledged after commit, 4 connections",
            "spans/s",
            lambda: _END_TO_END * collectives.SPANS / _send(server.otlp_addr, next(seeds)),
        )


def _null(bodies: list[bytes]) -> None:
    """A server that only answers: the cost of the transport."""
    handler = grpc.unary_unary_rpc_method_handler(lambda body, context: b"")

    class Null(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> object:
            return handler

    server = grpc.server(ThreadPoolExecutor(4), handlers=[Null()])  # type: ignore[list-item]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Sender(f"127.0.0.1:{port}") as sender:
        for body in bodies:
            sender.send("traces", body)
    server.stop(None)


def _send(address: str, seed: int) -> float:
    command = [sys.executable, "-m", "bench.generator", address, str(_END_TO_END), str(seed), "4"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None and producer.stdout is not None
        producer.stdout.readline()
        producer.stdin.write("go\n")
        producer.stdin.flush()
        return float(producer.stdout.readline())
