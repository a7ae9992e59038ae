"""A real collector in the path: rotel re-batches, queues, compresses, and retries across a restart of the server."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from ingero_mcp.events import Resource, Sample, Span
from ingero_mcp.otlp.encode import encode_samples, encode_spans
from ingero_mcp.sender import Sender
from tests.processes import ServerProcess

ROTEL = importlib.util.find_spec("rotel")
pytestmark = pytest.mark.skipif(ROTEL is None, reason="rotel is not installed: pip install rotel==0.0.1a15")
NOW_NS = 1_796_000_000_000_000_000
NODE = Resource({"ingero.cluster.id": "c", "ingero.node.id": "n"})
BATCHES = 20
ROWS = 50


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def wait_until(claim: Callable[[], bool], seconds: float = 60) -> None:
    """Bounded, on a condition."""
    give_up = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.1)


@contextmanager
def collector(folder: Path, endpoint: str, protocol: str) -> Iterator[str]:
    """A running rotel that sends to `endpoint`; yields the address on which it takes OTLP/gRPC."""
    assert ROTEL is not None and ROTEL.origin is not None
    grpc_address, http_address = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    command = [
        str(Path(ROTEL.origin).with_name("rotel-agent")),
        "start",
        f"--pid-file={folder / 'rotel.pid'}",
        f"--otlp-grpc-endpoint={grpc_address}",
        f"--otlp-http-endpoint={http_address}",
        "--exporter=otlp",
        f"--otlp-exporter-endpoint={endpoint}",
        f"--otlp-exporter-protocol={protocol}",
        "--otlp-exporter-compression=gzip",
        "--otlp-exporter-retry-initial-backoff=200ms",
        "--otlp-exporter-retry-max-backoff=1s",
        "--batch-max-size=128",
        "--batch-timeout=200ms",
    ]
    with (folder / "rotel.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: is_listening(grpc_address))
            yield grpc_address
        except AssertionError:
            # Whether the collector still tries or has given a batch up is known to it alone.
            print((folder / "rotel.log").read_text()[-5000:])
            raise
        finally:
            process.terminate()
            process.wait(30)


def is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def counts(url: str) -> list[int]:
    """Events, and events that are distinct."""
    sql = "SELECT count(*), count(DISTINCT (metric_name, event_seq)) FROM events"
    answer = httpx2.post(f"{url}/api/v1/query", json={"sql": sql}).json()
    row: list[int] = answer["rows"][0]
    return row


def send(address: str, batches: range) -> None:
    with Sender(address) as sender:
        for number in batches:
            sequence = [number * ROWS + row for row in range(ROWS)]
            sender.send(
                "metrics",
                encode_samples(NODE, [Sample("m", NOW_NS + seq, seq, {"ingero.event.seq": seq}) for seq in sequence]),
            )
            sender.send(
                "traces",
                encode_spans(
                    NODE, [Span("s", NOW_NS, NOW_NS + seq, {"ingero.event.seq": seq}, b"t" * 16) for seq in sequence]
                ),
            )


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_collector_loses_nothing_across_a_restart_of_the_server(tmp_path: Path, protocol: str) -> None:
    path = tmp_path / "events.duckdb"
    ports = {"grpc": free_port(), "http": free_port()}
    flags = (f"--otlp-addr=127.0.0.1:{ports['grpc']}", f"--otlp-http-addr=127.0.0.1:{ports['http']}")
    with collector(tmp_path, f"http://127.0.0.1:{ports[protocol]}", protocol) as address:
        with ServerProcess.start(path, *flags) as server:
            send(address, range(BATCHES // 2))
            # This collector drops what is on its way when a connection breaks ("... because of a broken pipe").
            wait_until(lambda: counts(server.url)[0] == BATCHES * ROWS)
            server.kill()
        send(address, range(BATCHES // 2, BATCHES))
        expected = 2 * BATCHES * ROWS
        with ServerProcess.start(path, *flags) as server:
            wait_until(lambda: counts(server.url)[0] >= expected)
            assert counts(server.url) == [expected, expected]
