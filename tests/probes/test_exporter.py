"""The exporter keeps a batch until the receiver has it, and says what it could not deliver."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ingero_mcp.events import Event, Point, Resource, Sample, Span
from ingero_probes.exporter import BATCH, Exporter
from tests.conftest import RunServer
from tests.probes.tracing import query

START_NS = 1_796_000_000_000_000_000
RESOURCE = Resource({"ingero.cluster.id": "c", "ingero.node.id": "n"})


def events(count: int) -> list[Event]:
    made: list[Event] = []
    for number in range(count):
        attributes = {"ingero.event.seq": number}
        made.append(
            [
                Span("cudaMalloc", START_NS + number, START_NS + number + 5, attributes),
                Point("annotation", START_NS + number, attributes),
                Sample("ingero.probe.events", START_NS + number, number, attributes),
            ][number % 3]  # type: ignore[arg-type]
        )
    return made


def test_all_three_signals_arrive_once(run_server: RunServer, tmp_path: Path) -> None:
    count = 7 * BATCH + 5
    with run_server() as server:
        exporter = Exporter(server.otlp_addr)
        for event in events(count):
            exporter.add(RESOURCE, event)
        assert exporter.close(30) == 0
    assert (exporter.acknowledged, exporter.lost, exporter.problem) == (count, 0, "")
    sql = "SELECT count(*), count(DISTINCT event_seq), count(DISTINCT metric_name) FROM events"
    assert query(tmp_path / "events.duckdb", sql) == [(count, count, 3)]


def test_it_waits_for_a_server_that_is_not_there_yet(run_server: RunServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    exporter = Exporter(address)
    exporter.add(RESOURCE, events(1)[0])
    exporter.flush()
    with run_server(otlp_addr=address):
        assert exporter.close(30) == 0
    assert exporter.acknowledged == 1


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_refused_token_is_told_and_nothing_is_dropped(run_server: RunServer, tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text("right")
    with run_server(auth_token_file=str(tmp_path / "token")) as server:
        refused, accepted = Exporter(server.otlp_addr, token), Exporter(server.otlp_addr, "right")
        for exporter in (refused, accepted):
            exporter.add(RESOURCE, events(1)[0])
        assert (refused.close(0.5), accepted.close(30)) == (1, 0)
    assert "refuses the token" in refused.problem
    assert (refused.acknowledged, refused.lost, accepted.acknowledged) == (0, 0, 1)
