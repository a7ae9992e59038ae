"""Profiler traces through `ingero import`, into a store and out of it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingero_mcp.cli.main import main
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from tests.conftest import DATA
from tests.importers.kineto_job import Job

REAL = DATA / "kineto"

_JOINED = (
    "SELECT a.metric_name, a.duration_ns, b.duration_ns, b.timestamp_ns - a.timestamp_ns FROM events a JOIN events b "
    "ON a.comm_id = b.comm_id AND a.coll_seq = b.coll_seq WHERE a.rank = 0 AND b.rank = 1 ORDER BY a.timestamp_ns"
)


def ask(database: Path, sql: str) -> list[tuple[object, ...]]:
    with open_store(database) as store:
        return store.query(check(sql), limit=1000).rows


def test_the_ranks_of_a_job_join_by_communicator_and_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = tmp_path / "run"
    traces.mkdir()
    Job(steps=4, style="numbered", late=(1, 2, 40.0)).write(traces)
    database = tmp_path / "x.duckdb"
    assert main(["import", str(traces), "-d", str(database)]) == 0
    late = [round(int(str(row[3])) / 1e6) for row in ask(database, _JOINED)]
    assert late == [0, 0, 40, 40]
    capsys.readouterr()
    assert main(["import", str(traces), "-d", str(database), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["files"]
    assert [fact["stored"] for fact in facts] == [0, 0]
    assert {fact["kind"] for fact in facts} == {"Kineto trace"}


def test_a_cut_trace_stores_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound, cut = Job().write(tmp_path)
    cut.write_bytes(cut.read_bytes()[:-20])
    assert main(["import", str(tmp_path), "-d", str(tmp_path / "x.duckdb")]) == 1
    assert "rank1.pt.trace.json.gz ends early: its gzip data is truncated" in capsys.readouterr().err
    assert not (tmp_path / "x.duckdb").exists()
    assert sound.exists()


@pytest.mark.skipif(not REAL.is_dir(), reason="the real traces are not here")
def test_real_traces_of_two_ranks_pair(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    assert main(["import", str(REAL), "-d", str(database)]) == 0
    counts = "SELECT rank, count(*) FROM events WHERE source = 'nccl' GROUP BY rank ORDER BY rank"
    assert ask(database, counts) == [(0, 10), (1, 10)]
    pairs = [row for row in ask(database, _JOINED) if row[0] == "ncclAllGather"]
    assert pairs[0] == ("ncclAllGather", 42_496_000, 42_744_000, 84_000)
    assert len(pairs) == 2
