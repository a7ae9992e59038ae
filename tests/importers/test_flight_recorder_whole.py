"""Whole jobs: what is equal in both forms of a dump, meets across ranks, and is imported once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.cli.import_file import put
from ingero_mcp.importers.flight_recorder.recorder import mismatch
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.registry import open_file, sort_out
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from tests.importers.flight_recorder_job import START_NS, Job, Row, rows, write_folder, write_json, write_pickle


def by_rank(imports: Iterable[Import]) -> list[Row]:
    found = [row for read in imports for row in rows(read)]
    return sorted(found, key=lambda row: (row["rank"], row["event_seq"]))


@settings(deadline=None, max_examples=25)
@given(
    job=st.builds(
        Job,
        dp=st.integers(1, 3),
        tp=st.integers(1, 3),
        steps=st.integers(1, 3),
        stopped=st.sets(st.integers(0, 8), max_size=2).map(tuple),
        silent=st.sets(st.integers(0, 8), max_size=2).map(tuple),
        frames=st.booleans(),
        seed=st.integers(0, 1000),
    ),
    protocol=st.integers(0, 5),
)
def test_a_job_is_the_same_as_pickles_and_as_json(job: Job, protocol: int) -> None:
    with TemporaryDirectory() as folder:
        dumps = job.dumps()
        paths = write_folder(Path(folder) / "job", dumps, protocol)
        together = write_json(Path(folder) / "job.json", dumps)
        for path in (*paths, together):
            os.utime(path, ns=(START_NS, START_NS))  # a job in which nothing happened has no other time
        pickles = [open_file(path) for path in paths]
        whole = open_file(together)
        assert by_rank([whole]) == by_rank(pickles)
        assert whole.warnings == () or job.steps == 1
        assert by_rank([open_file(path) for path in paths]) == by_rank([open_file(together)])
        assert (whole.ranks, whole.world_size) == (len(dumps), len(dumps))


def test_ranks_of_a_job_meet_in_communicator_and_number(tmp_path: Path) -> None:
    job = Job(dp=3, tp=2, steps=4)
    read = [open_file(path) for path in write_folder(tmp_path / "job", job.dumps())]
    meetings: dict[tuple[str, int], list[Row]] = {}
    for row in by_rank(read):
        if row.get("timing_source") == "recorder" and row["metric_name"] not in ("ncclSend", "ncclRecv"):
            meetings.setdefault((row["comm_id"], row["coll_seq"]), []).append(row)
    assert len(meetings) == job.steps * (job.dp * 1 + job.tp * 2)
    for met in meetings.values():
        assert len(met) == met[0]["nranks"]
        assert len({row["metric_name"] for row in met}) == 1
        assert len({row["trace_id"] for row in met}) == 1
        assert [row["nccl.rank"] for row in met] == list(range(len(met)))


def test_a_send_and_its_receive_name_each_other(tmp_path: Path) -> None:
    read = [open_file(path) for path in write_folder(tmp_path / "job", Job(dp=3, tp=2).dumps())]
    ends = [row for row in by_rank(read) if row["metric_name"] in ("ncclSend", "ncclRecv")]
    sends = {ends_of(row) for row in ends if row["metric_name"] == "ncclSend"}
    receives = {ends_of(row)[::-1] for row in ends if row["metric_name"] == "ncclRecv"}
    assert sends == receives
    assert len(sends) == 6


def ends_of(row: dict[str, Any]) -> tuple[tuple[str, int], tuple[str, int]]:
    """The two ends of a send or receive, by their places in the communicator."""
    return (row["comm_id"], row["nccl.rank"]), (row["comm_id"], row["nccl.peer_rank"])


def test_numbers_of_events_are_unique(tmp_path: Path) -> None:
    read = [open_file(path) for path in write_folder(tmp_path / "job", Job(dp=4, tp=4).dumps())]
    numbers = [row["event_seq"] for row in by_rank(read)]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < 1 << 51


def test_the_same_job_twice_or_in_the_other_form_adds_nothing(tmp_path: Path) -> None:
    dumps = Job().dumps()
    write_folder(tmp_path / "job", dumps)
    write_json(tmp_path / "job.json", dumps)
    with open_store(None) as store:
        found = sort_out(tmp_path)
        assert [path.name for path in found.files] == ["job.json", *(f"_dump_{rank}" for rank in range(4))]
        first = put(open_file(found.files[0]), store)
        assert first == 4 * (15 + 3 + 1)
        assert [put(open_file(path), store) for path in found.files] == [0] * 5
        assert store.query(check("SELECT count(*) FROM events"), limit=1).rows == [(first,)]
        stacks = store.query(check("SELECT frames FROM stacks ORDER BY frames"), limit=10).rows
        assert len(stacks) == 2 * 2 + 3


def test_companions_of_dumps_are_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    write_folder(folder, Job().dumps())
    (folder / "README.md").write_text("pg_config and profiling_name are explained here")
    (folder / "fault_injection.log").write_text("Fault ranks: [12]")
    (folder / "core.1234").write_bytes(b"\x7fELF" + b"pg_config" * 1000)
    write_pickle(folder / "model.pkl", {"weights": [1.0, 2.0]})
    whole = (folder / "_dump_0").read_bytes()
    (folder / "_dump_9").write_bytes(whole[: len(whole) // 2])
    (folder / "_dump_8").write_bytes(b"")
    found = sort_out(folder)
    assert [path.name for path in found.files] == [f"_dump_{rank}" for rank in range(4)]
    assert {path.name for path, _ in found.skipped} >= {"README.md", "core.1234", "_dump_8", "_dump_9", "model.pkl"}


def test_a_trace_of_the_profiler_is_no_dump(tmp_path: Path) -> None:
    trace = {"schemaVersion": 1, "distributedInfo": {"pg_config": {}}, "traceEvents": [{"profiling_name": 1}]}
    assert mismatch(write_json(tmp_path / "trace.json", trace)) == "JSON or a pickle of something else"


def test_a_given_node_and_cluster_are_those_of_every_row(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "job" / "_dump_0", Job().dumps()[0])
    read = open_file(path, Names(node="n7", cluster="c1"))
    assert {(row["node_id"], row["cluster_id"]) for row in rows(read)} == {("n7", "c1")}
    assert {(row["node_id"], row["cluster_id"]) for batch in read.context for row in batch.to_pylist()} == {
        ("n7", "c1")
    }
    assert read.digest == open_file(path).digest
