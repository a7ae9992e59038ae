"""What becomes of the rows of an op trace, on generated jobs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.errors import ConfigError
from ingero_mcp.importers.imported import Import
from ingero_mcp.importers.optrace import trace as optrace
from ingero_mcp.importers.registry import open_file
from tests.importers.optrace_job import Job, with_column, write

COLLECTIVES = ("ncclAllReduce", "ncclAllGather", "ncclReduceScatter")

jobs = st.builds(
    Job,
    dp=st.integers(1, 4),
    pp=st.integers(1, 4),
    tp=st.sampled_from([1, 2, 4]),
    steps=st.integers(1, 3),
    micro_batches=st.integers(1, 4),
    seed=st.integers(0, 1000),
)


def imported(table: pa.Table, job: Job, **options: Any) -> tuple[Import, list[dict[str, Any]]]:
    with TemporaryDirectory() as folder:
        result = optrace.read(write(Path(folder), table, job.meta()), **options)
    return result, events_of(result)


def events_of(result: Import) -> list[dict[str, Any]]:
    batches = list(result.batches)
    assert all(batch.schema == ARROW_SCHEMA for batch in batches)
    return pa.Table.from_batches(batches).to_pylist()


def attrs(event: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(event["attrs_json"])
    assert isinstance(found, dict)
    return found


def exact_ns(seconds: float) -> int:
    return round(seconds * 1e9)


def operations(events: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The events of each collective, and of each send with its receive."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for event in events:
        if event["comm_id"] is not None:
            found = attrs(event)
            ends = (found["nccl.rank"], found.get("nccl.peer_rank"))
            channel = ends[::-1] if event["metric_name"] == "ncclRecv" else ends
            key = channel if event["metric_name"] in ("ncclSend", "ncclRecv") else ()
            groups.setdefault((event["comm_id"], key, event["coll_seq"]), []).append(event)
    yield from groups.values()


@given(jobs)
@settings(max_examples=30, deadline=None)
def test_every_row_becomes_exactly_one_event_of_exactly_its_duration(job: Job) -> None:
    table = job.table()
    result, events = imported(table, job)
    assert result.rows == len(table) == len(events)
    assert (result.ranks, result.steps, result.world_size) == (job.dp * job.pp, job.steps, job.dp * job.pp * job.tp)
    assert Counter(
        (row["rank"], row["step"], row["optype"], exact_ns(row["duration"])) for row in table.to_pylist()
    ) == Counter(
        (event["rank"], event["step"], attrs(event)["ingero.op_type"], event["duration_ns"]) for event in events
    )


@given(jobs)
@settings(max_examples=30, deadline=None)
def test_times_within_a_step_are_exact_and_steps_lie_end_to_end(job: Job) -> None:
    table = job.table()
    _, events = imported(table, job)
    begin = optrace.DEFAULT_EPOCH_NS
    for step in sorted(set(table.column("step").to_pylist())):
        rows = table.filter(pc.equal(table.column("step"), step)).to_pylist()
        first = min(exact_ns(row["start_ts"]) for row in rows)
        expected = sorted(begin + exact_ns(row["start_ts"]) - first for row in rows)
        assert [event["timestamp_ns"] for event in events if event["step"] == step] == expected
        begin += max(exact_ns(row["start_ts"]) + exact_ns(row["duration"]) for row in rows) - first


@given(jobs)
@settings(max_examples=30, deadline=None)
def test_one_operation_has_one_number_on_all_its_ranks_and_happens_at_one_time(job: Job) -> None:
    result, events = imported(job.table(), job)
    for members in operations(events):
        assert len({event["rank"] for event in members}) == len(members)
        assert len({(event["trace_id"], event["nranks"]) for event in members}) == 1
        names = sorted(event["metric_name"] for event in members)
        assert names == ["ncclRecv", "ncclSend"] or len(set(names)) == 1
        first_end = min(event["timestamp_ns"] + event["duration_ns"] for event in members)
        # A float of a few seconds resolves a quarter of a microsecond.
        assert max(event["timestamp_ns"] for event in members) <= first_end + 1_000
    assert not [warning for warning in result.warnings if "lack" in warning or "overlap" in warning]


@given(jobs)
@settings(max_examples=30, deadline=None)
def test_numbers_count_from_zero_without_gaps_in_the_order_of_time(job: Job) -> None:
    _, events = imported(job.table(), job)
    channels: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for event in events:
        if event["comm_id"] is not None:
            found = attrs(event)
            channel = (event["rank"], event["comm_id"], found["nccl.rank"], found.get("nccl.peer_rank"))
            is_send = event["metric_name"] == "ncclSend"
            channels.setdefault((*channel, is_send), []).append((event["timestamp_ns"], event["coll_seq"]))
    for numbered in channels.values():
        numbers = [number for _, number in sorted(numbered)]
        assert numbers == list(range(len(numbers)))


@given(jobs, st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_the_order_of_rows_in_the_file_does_not_matter(job: Job, dice: Any) -> None:
    table = job.table()
    order = list(range(len(table)))
    dice.shuffle(order)
    _, events = imported(table, job)
    _, shuffled = imported(table.take(order), job)
    first, other = events[0]["event_seq"], shuffled[0]["event_seq"]
    assert [event | {"event_seq": event["event_seq"] - first} for event in events] == [
        event | {"event_seq": event["event_seq"] - other} for event in shuffled
    ]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    job = Job(dp=2, pp=3, tp=4)
    return write(tmp_path, job.table(), job.meta())


def test_communicators_are_the_groups_of_the_layout(trace: Path) -> None:
    events = events_of(open_file(trace))
    members: dict[tuple[str, str, int], set[int]] = {}
    for event in events:
        if event["metric_name"] in COLLECTIVES:
            key = (attrs(event)["ingero.op_type"], event["comm_id"], event["nranks"])
            members.setdefault(key, set()).add(event["rank"])
    by_operation: dict[tuple[str, int], set[frozenset[int]]] = {}
    for (op_type, _, nranks), ranks in members.items():
        by_operation.setdefault((op_type, nranks), set()).add(frozenset(ranks))
    stages = {frozenset({0, 4}), frozenset({8, 12}), frozenset({16, 20})}
    assert by_operation == {
        ("params-all-gather", 2): stages,
        ("grads-reduce-scatter", 2): stages,
        ("embedding-grads-all-reduce", 2): {frozenset({0, 16}), frozenset({4, 20})},
        ("layernorm-grads-all-reduce", 4): {frozenset({rank}) for rank in (0, 4, 8, 12, 16, 20)},
    }


def test_the_gather_of_weights_and_the_scatter_of_gradients_share_a_communicator(trace: Path) -> None:
    events = [event for event in events_of(open_file(trace)) if event["rank"] == 8]
    numbers = {
        event["coll_seq"]: (event["metric_name"], event["comm_id"])
        for event in events
        if event["metric_name"] in ("ncclAllGather", "ncclReduceScatter")
    }
    comm_id = numbers[0][1]
    assert numbers == {
        0: ("ncclAllGather", comm_id),
        1: ("ncclReduceScatter", comm_id),
        2: ("ncclAllGather", comm_id),
        3: ("ncclReduceScatter", comm_id),
    }
    assert len(comm_id) == 16
    assert int(comm_id, 16) >= 0


def test_an_event_says_what_the_trace_says_and_leaves_the_rest_empty(trace: Path) -> None:
    event = next(
        event
        for event in events_of(open_file(trace))
        if event["rank"] == 12 and attrs(event)["ingero.op_type"] == "forward-recv"
    )
    assert attrs(event) == {
        "ingero.op_type": "forward-recv",
        "ingero.stage": 1,
        "ingero.dp_rank": 1,
        "nccl.rank": 1,
        "nccl.peer_rank": 0,
    }
    assert {name: value for name, value in event.items() if value is not None}.keys() == {
        "cluster_id", "node_id", "job_id", "event_seq", "timestamp_ns", "duration_ns", "source", "metric_name", "rank",
        "nranks", "world_size", "comm_id", "coll_seq", "step", "timing_source", "trace_id", "attrs_json",
    }  # fmt: skip
    assert (event["cluster_id"], event["node_id"], event["job_id"]) == ("look-alike", "unknown", "look-alike-run7")
    assert (event["source"], event["timing_source"], event["world_size"]) == ("nccl", "kernel_gpu", 24)


def test_only_work_on_a_micro_batch_names_one(trace: Path) -> None:
    found = {
        attrs(event)["ingero.op_type"] for event in events_of(open_file(trace)) if "ingero.micro_batch" in attrs(event)
    }
    assert found == {"forward-compute", "backward-compute"}


def test_garbage_collection_is_python_and_was_not_timed_on_the_gpu(trace: Path) -> None:
    found = [event for event in events_of(open_file(trace)) if attrs(event)["ingero.op_type"] == "gc"]
    assert {
        (event["metric_name"], event["source"], event["timing_source"], event["duration_ns"]) for event in found
    } == {("python.gc", "python", "host_api", 0)}


def test_the_same_content_is_recognised_wherever_it_lies_and_gives_the_same_events(trace: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(trace, elsewhere / "trace-other.parquet")
    shutil.copy(trace.with_name("meta-job.yaml"), elsewhere / "meta-other.yaml")
    first, second = open_file(trace), open_file(elsewhere / "trace-other.parquet")
    assert first.digest == second.digest
    assert events_of(first) == events_of(second)


def test_another_layout_is_another_import(trace: Path) -> None:
    digest = open_file(trace).digest
    meta = trace.with_name("meta-job.yaml")
    meta.write_text(meta.read_text().replace("run_id: 7", "run_id: 8"))
    assert open_file(trace).digest != digest


def test_ids_are_unique_across_imports_and_below_those_a_server_gives(trace: Path) -> None:
    numbers = [event["event_seq"] for event in events_of(open_file(trace))]
    meta = trace.with_name("meta-job.yaml")
    meta.write_text(meta.read_text().replace("run_id: 7", "run_id: 8"))
    numbers += [event["event_seq"] for event in events_of(open_file(trace))]
    assert len(set(numbers)) == len(numbers)
    assert all(0 <= number < 2**51 for number in numbers)


def test_an_epoch_moves_all_events_and_nothing_else(trace: Path) -> None:
    epoch = optrace.DEFAULT_EPOCH_NS + 123_456_789
    usual, moved = optrace.read(trace), optrace.read(trace, epoch_ns=epoch)
    assert usual.digest == moved.digest
    assert [event | {"timestamp_ns": event["timestamp_ns"] + 123_456_789} for event in events_of(usual)] == events_of(
        moved
    )


@pytest.mark.parametrize("epoch_ns", [0, -1, 1_735_689_600, 2**63])
def test_an_epoch_in_other_units_is_refused(trace: Path, epoch_ns: int) -> None:
    with pytest.raises(ConfigError, match="nanoseconds"):
        optrace.read(trace, epoch_ns=epoch_ns)


def test_a_name_we_do_not_know_is_kept_apart_and_escaped() -> None:
    job = Job()
    name = 'odd "op" \\ é'
    table = job.table()
    odd = with_column(table, "optype", (name if op == "optimizer" else op for op in table.column("optype").to_pylist()))
    result, events = imported(odd, job)
    assert any(name in warning for warning in result.warnings)
    found = [event for event in events if attrs(event)["ingero.op_type"] == name]
    assert len(found) == table.column("optype").to_pylist().count("optimizer")
    assert {(event["metric_name"], event["source"], event["comm_id"]) for event in found} == {
        (f"op.{name}", "gpu", None)
    }


def test_a_lost_row_does_not_shift_the_numbers_of_later_operations() -> None:
    job = Job(steps=3)
    table = job.table()
    first = next(
        index
        for index, row in enumerate(table.to_pylist())
        if row["optype"] == "grads-reduce-scatter" and row["rank"] == 1
    )
    result, events = imported(pa.concat_tables([table.slice(0, first), table.slice(first + 1)]), job)
    numbers = {
        rank: [e["coll_seq"] for e in events if e["rank"] == rank and e["metric_name"] == "ncclReduceScatter"]
        for rank in (0, 1)
    }
    assert numbers == {0: [1, 3, 5], 1: [3, 5]}
    assert any(warning.startswith("1 of") and "lack" in warning for warning in result.warnings)


def test_operations_that_cannot_be_one_are_counted_in_a_warning() -> None:
    job = Job()
    rows = job.table()
    starts = [row["start_ts"] + (5.0 if row["rank"] == 1 else 0.0) for row in rows.to_pylist()]
    result, _ = imported(with_column(rows, "start_ts", starts), job)
    assert any("do not overlap in time" in warning for warning in result.warnings)


def test_ranks_counted_in_another_order_are_accepted_with_a_warning() -> None:
    job = Job(dp=2, pp=2, tp=2)
    table = job.table()
    pipeline_first = {0: 0, 2: 4, 4: 2, 6: 6}
    renamed = with_column(table, "rank", (pipeline_first[rank] for rank in table.column("rank").to_pylist()))
    result, events = imported(renamed, job)
    assert any("tensor, data, pipeline" in warning for warning in result.warnings)
    layernorm = [event for event in events if attrs(event)["ingero.op_type"].startswith("layernorm")]
    assert all("nccl.rank" not in attrs(event) for event in layernorm)


def test_what_the_trace_does_not_record_is_said(trace: Path) -> None:
    warnings = " ".join(open_file(trace).warnings)
    assert "no hosts" in warnings
    assert "no absolute time" in warnings
    assert "6 of 24 ranks" in warnings


def test_model_chunks_are_told_apart_where_a_stage_has_several() -> None:
    job = Job()
    table = job.table()
    chunks = [row["seq_id"] % 2 if row["optype"].endswith("compute") else -1 for row in table.to_pylist()]
    with TemporaryDirectory() as folder:
        path = write(Path(folder), with_column(table, "mc", chunks), job.meta() | {"vpp_size": 2})
        events = events_of(optrace.read(path))
    found = {attrs(e).get("ingero.model_chunk") for e in events if e["metric_name"] == "compute"}
    assert found == {0, 1, None}


def test_a_trace_without_communication_or_micro_batches_is_still_one() -> None:
    job = Job(dp=1, pp=1)
    table = job.table().drop_columns(["mc", "mb_id", "gmc"])
    result, events = imported(table.filter(pc.equal(table.column("optype"), "forward-compute")), job)
    assert result.rows == len(events) == job.steps * job.micro_batches
    assert {event["coll_seq"] for event in events} == {None}


def test_a_long_trace_comes_in_several_batches_in_time_order(tmp_path: Path) -> None:
    job = Job(dp=4, pp=4, steps=24, micro_batches=36)
    result = open_file(write(tmp_path, job.table(), job.meta()))
    batches = list(result.batches)
    assert [len(batch) > 0 for batch in batches] == [True, True]
    table = pa.Table.from_batches(batches)
    assert len(table) == result.rows > 1 << 16
    times = table.column("timestamp_ns").to_pylist()
    assert times == sorted(times)
    numbers = table.column("event_seq").to_pylist()
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
