"""Statements that would take 20 GB or run for ever, asked of a real server while producers send to it."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from ingero_mcp.events import Resource, Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.sender import Sender
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from tests import processes
from tests.processes import ServerProcess

ROWS = 200
SMALL = ("--memory-mib=200", "--process-memory-mib=2400", "--query-timeout-s=2")
ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000) c WHERE a.range + b.range = 7"
# About 20 GB each; the last ones are many large values of one step, which DuckDB's own limit does not see.
BOMBS = (
    "SELECT len(range(2500000000))",
    "SELECT len(repeat('x', 20000000000))",
    "SELECT sum(strlen(repeat('x', 100000000 + i::INTEGER))) FROM range(200) t(i)",
    "SELECT sum(len(range(20000000 + i))) FROM range(125) t(i)",
)
# What the guard lets pass, and a database of 200 MiB cannot hold.
GREEDY = (
    "SELECT len(list(hash(a.range, b.range))) FROM range(1000000) a, range(1000) b",
    "SELECT length(string_agg(node_id || a.range, ',')) FROM events, range(1000000) a",
    "SELECT count(*) FROM (SELECT DISTINCT a.range, b.range FROM range(1000000) a, range(1000) b)",
    "SELECT quantile_cont(hash(a.range, b.range)::DOUBLE, 0.5) FROM range(1000000) a, range(1000) b",
)


class Askers:
    """One client for each statement, which asks it again and again; `answers` counts codes of answers."""

    def __init__(self, server: ServerProcess, statements: Sequence[str]) -> None:
        self.answers: Counter[tuple[str, str]] = Counter()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(server.url, sql)) for sql in statements]

    def _ask(self, url: str, sql: str) -> None:
        with httpx2.Client(timeout=60, trust_env=False) as client:
            while not self._stop.is_set():
                answer = client.post(f"{url}/api/v1/query", json={"sql": sql, "limit": 1})
                self.answers[sql, answer.json().get("code", "answered")] += 1

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


def send_until_each_was_answered(server: ServerProcess, statements: Sequence[str]) -> tuple[int, Counter[str]]:
    """Events acknowledged meanwhile, and the codes of the answers."""
    sent = 0
    with ExitStack() as opened:
        sender = opened.enter_context(Sender(server.otlp_addr))
        send(sender, 0)
        askers = opened.enter_context(Askers(server, statements))
        while len({sql for sql, _ in askers.answers}) < len(statements) or sent < 40:
            assert sent < 4000, askers.answers
            sent += 1
            send(sender, sent)
        assert server.process.poll() is None
    return (sent + 1) * ROWS, Counter(code for _, code in askers.answers.elements())


def send(sender: Sender, number: int) -> None:
    at_ns = 1_796_000_000_000_000_000 + number * ROWS
    samples = [Sample("m", at_ns + place, 1.0, {"pad": "x" * 100}) for place in range(ROWS)]
    sender.send("metrics", encode_samples(Resource({"ingero.node.id": "n"}), samples))


def stored(path: Path) -> int:
    with open_store(path, read_only=True) as store:
        [[number]] = store.query(check("SELECT count(*) FROM events"), limit=1).rows
    assert isinstance(number, int)
    return number


def test_bombs_are_refused_and_endless_queries_stopped_while_batches_are_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "events.duckdb"
    with ServerProcess.start(path, *SMALL) as server:
        acknowledged, codes = send_until_each_was_answered(server, [BOMBS[0], ENDLESS])
        assert server.terminate() == 0
    assert codes.keys() == {"refused_sql", "query_timeout"}
    assert stored(path) == acknowledged


@pytest.mark.nightly
def test_what_the_guard_lets_pass_takes_no_memory_from_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "events.duckdb"
    with ServerProcess.start(path, *SMALL) as server:
        acknowledged, codes = send_until_each_was_answered(server, GREEDY)
        assert server.terminate() == 0
    assert codes.keys() <= {"query_failed", "query_timeout", "busy"}
    assert stored(path) == acknowledged


@pytest.mark.nightly
def test_past_the_guard_the_operating_system_stops_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unguarded = Path(__file__).with_name("unguarded.py")
    monkeypatch.setattr(processes, "INGERO", (sys.executable, str(unguarded)))
    path = tmp_path / "events.duckdb"
    with ServerProcess.start(path, *SMALL) as server:
        acknowledged, codes = send_until_each_was_answered(server, BOMBS)
        assert server.terminate() == 0
    assert codes.keys() <= {"query_failed", "query_timeout", "busy"}
    assert stored(path) == acknowledged
