"""Dumps of the Flight Recorder become events that can be joined across ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingero_mcp.cli.import_file import put
from ingero_mcp.importers.imported import Import
from ingero_mcp.importers.registry import open_file
from ingero_mcp.store import open_store
from tests.importers.flight_recorder_job import (
    MS,
    START_NS,
    Dump,
    Row,
    calls,
    dump,
    entry,
    points,
    write_json,
    write_pickle,
)


def read_one(folder: Path, value: Dump, name: str = "_dump_1") -> Import:
    return open_file(write_pickle(folder / "job" / name, value))


def only_call(folder: Path, **changed: Any) -> Row:
    (row,) = calls(read_one(folder, dump(entry(**changed))))
    return row


def test_a_completed_collective_is_a_span_from_the_call_to_the_discovered_end(tmp_path: Path) -> None:
    row = only_call(tmp_path)
    assert row["event_seq"] > 0
    comm_id, trace_id = row.pop("comm_id"), row.pop("trace_id")
    assert (len(comm_id), len(trace_id)) == (16, 32)
    del row["event_seq"]
    assert row == {
        "cluster_id": "unknown",
        "node_id": "unknown",
        "job_id": "flight-recorder:job",
        "timestamp_ns": START_NS,
        "duration_ns": 5 * MS,
        "source": "nccl",
        "metric_name": "ncclAllReduce",
        "rank": 1,
        "nranks": 4,
        "world_size": 4,
        "coll_seq": 5,
        "bytes": 2048,
        "timing_source": "recorder",
        "nccl.op_type": "ncclAllReduce",
        "ingero.op_type": "all_reduce",
        "nccl.rank": 1,
        "nccl.count": 1024,
        "nccl.output_count": 1024,
        "nccl.datatype": "bfloat16",
        "nccl.state": "completed",
        "ingero.seq_origin": "init",
        "thread.name": "python3",
        "recorder.record_id": 7,
        "recorder.op_id": 5,
        "recorder.timeout_ms": 600_000,
        "recorder.retired": True,
        "recorder.started_ns": START_NS + MS,
    }


@pytest.mark.parametrize("nothing", [None, 0, ...])
@pytest.mark.parametrize("state", ["scheduled", "started", ..., "odd"])
def test_what_is_not_complete_has_no_end(tmp_path: Path, state: Any, nothing: Any) -> None:
    row = only_call(
        tmp_path, state=state, time_discovered_started_ns=nothing, time_discovered_completed_ns=nothing, retired=False
    )
    assert "duration_ns" not in row
    assert row["ingero.unfinished"] is True
    assert row["nccl.state"] == (state if state == "started" else "scheduled")


def test_a_completed_one_whose_end_is_not_known_is_not_unfinished(tmp_path: Path) -> None:
    row = only_call(tmp_path, time_discovered_completed_ns=None)
    assert "duration_ns" not in row
    assert "ingero.unfinished" not in row


def test_a_missing_state_follows_from_the_times(tmp_path: Path) -> None:
    assert only_call(tmp_path, state=...)["nccl.state"] == "completed"
    assert only_call(tmp_path, state=..., time_discovered_completed_ns=None)["nccl.state"] == "started"


@pytest.mark.parametrize(
    ("name", "event", "kept"),
    [
        ("nccl:all_reduce", "ncclAllReduce", "all_reduce"),
        ("nccl:allreduce_coalesced", "ncclAllReduce", "allreduce_coalesced"),
        ("nccl:all_reduce_barrier", "ncclAllReduce", "all_reduce_barrier"),
        ("nccl:barrier", "ncclAllReduce", "barrier"),
        ("nccl:all_gather", "ncclAllGather", "all_gather"),
        ("nccl:_all_gather_base", "ncclAllGather", "_all_gather_base"),
        ("nccl:ALLGATHER_coalesced", "ncclAllGather", "ALLGATHER_coalesced"),
        ("nccl:all_gather_into_tensor_coalesced", "ncclAllGather", "all_gather_into_tensor_coalesced"),
        ("nccl:reduce_scatter", "ncclReduceScatter", "reduce_scatter"),
        ("nccl:_reduce_scatter_base", "ncclReduceScatter", "_reduce_scatter_base"),
        ("nccl:REDUCE_SCATTER_coalesced", "ncclReduceScatter", "REDUCE_SCATTER_coalesced"),
        ("nccl:reduce_scatter_tensor_coalesced", "ncclReduceScatter", "reduce_scatter_tensor_coalesced"),
        ("nccl:broadcast", "ncclBroadcast", "broadcast"),
        ("nccl:_broadcast_oop", "ncclBroadcast", "_broadcast_oop"),
        ("nccl:reduce", "ncclReduce", "reduce"),
        ("nccl:_reduce_oop", "ncclReduce", "_reduce_oop"),
        ("nccl:all_to_all", "ncclAlltoAll", "all_to_all"),
        ("nccl:all_to_all_single", "ncclAlltoAll", "all_to_all_single"),
        ("xccl:alltoall_base", "ncclAlltoAll", "alltoall_base"),
        ("nccl:gather", "ncclGather", "gather"),
        ("nccl:scatter", "ncclScatter", "scatter"),
        ("all_reduce", "ncclAllReduce", "all_reduce"),
        ("nccl:split", "nccl.split", "split"),
        ("nccl:new\nop; <x>", "nccl.new_op_x_", "new_op_x_"),
        ("nccl:sendfile", "nccl.sendfile", "sendfile"),
        ("nccl:", "nccl.unnamed", "unnamed"),
        ("nccl:" + "x" * 500, "nccl." + "x" * 64, "x" * 64),
    ],
)
def test_operations_have_the_names_of_nccl(tmp_path: Path, name: str, event: str, kept: str) -> None:
    row = only_call(tmp_path, profiling_name=name)
    assert (row["metric_name"], row["nccl.op_type"], row["ingero.op_type"]) == (event, event, kept)
    assert row["source"] == "nccl"


def test_operations_without_a_name_in_nccl_are_told(tmp_path: Path) -> None:
    read = read_one(tmp_path, dump(*(entry(profiling_name=f"nccl:odd{n}") for n in range(7))))
    assert read.warnings == (
        "operations that NCCL has no name for: nccl.odd0, nccl.odd1, nccl.odd2, nccl.odd3, nccl.odd4 and 2 more",
    )


@pytest.mark.parametrize(
    ("name", "event", "peer"), [("nccl:send 1->0", "ncclSend", 0), ("nccl:recv 1<-3", "ncclRecv", 3)]
)
def test_a_send_names_its_peer_by_its_place_in_the_group(tmp_path: Path, name: str, event: str, peer: int) -> None:
    facts = entry(profiling_name=name, is_p2p=True, p2p_seq_id=9)
    (row,) = calls(read_one(tmp_path, dump(facts, ranks="[10, 11, 12, 13]"), "_dump_11"))
    assert (row["metric_name"], row["coll_seq"], row["nccl.peer_rank"], row["nccl.rank"]) == (event, 9, peer, 1)
    assert "trace_id" not in row


def test_a_peer_outside_the_group_is_left_out(tmp_path: Path) -> None:
    row = only_call(tmp_path, profiling_name="nccl:send 1->99", p2p_seq_id=9, is_p2p=...)
    assert row["coll_seq"] == 9
    assert "nccl.peer_rank" not in row


def test_a_send_of_another_rank_than_the_dump_is_told(tmp_path: Path) -> None:
    read = read_one(tmp_path, dump(entry(profiling_name="nccl:send 2->0")))
    assert read.warnings == ("1 sends and receives say another rank in their group than that of their dump",)


@pytest.mark.parametrize(
    ("facts", "count", "datatype", "size"),
    [
        ({"input_sizes": [[2, 3], [4]], "input_dtypes": ["Float", "Float"]}, 10, "float32", 40),
        ({"input_sizes": [[2], [4]], "input_dtypes": ["Long", "Byte"]}, 6, "int64,uint8", 20),
        ({"input_sizes": [[]], "input_dtypes": ["Double"]}, 1, "float64", 8),
        ({"input_sizes": [[0, 5]], "input_dtypes": ["Half"]}, 0, "float16", 0),
        ({"input_sizes": [[4]], "input_dtypes": ["NewType8"]}, 4, "NewType8", None),
        ({"input_sizes": [[4], [4]], "input_dtypes": ["Float"]}, 8, "float32", None),
        ({"input_sizes": [], "input_dtypes": []}, None, "bfloat16", None),
        ({"input_sizes": ..., "input_dtypes": ...}, None, "bfloat16", None),
        ({"input_sizes": [[-1]]}, None, "bfloat16", None),
        ({"input_sizes": [["x"]]}, None, "bfloat16", None),
        ({"input_sizes": [[2**40], [2**40]]}, 2**41, "bfloat16", None),
        ({"input_sizes": [[2**40, 2**40]]}, None, "bfloat16", None),
    ],
)
def test_elements_of_all_inputs_are_counted(
    tmp_path: Path, facts: dict[str, Any], count: int | None, datatype: str, size: int | None
) -> None:
    row = only_call(tmp_path, **facts)
    assert (row.get("nccl.count"), row["nccl.datatype"], row.get("bytes")) == (count, datatype, size)


def test_time_on_the_gpu_is_kept_where_it_was_measured(tmp_path: Path) -> None:
    assert only_call(tmp_path, duration_ms=1.5)["recorder.gpu_ns"] == 1_500_000
    for nonsense in (float("nan"), float("inf"), -1, "1", True):
        assert "recorder.gpu_ns" not in only_call(tmp_path, duration_ms=nonsense)


def test_a_group_is_a_point_with_its_members_and_how_far_it_came(tmp_path: Path) -> None:
    read = read_one(tmp_path, dump(entry()))
    (group,) = points(read, "nccl.communicator")
    (call,) = calls(read_one(tmp_path, dump(entry())))
    assert group["comm_id"] == call["comm_id"]
    expected = {
        "timestamp_ns": START_NS + 5 * MS,
        "rank": 1,
        "nranks": 4,
        "job_id": "flight-recorder:job",
        "nccl.comm.ranks": [0, 1, 2, 3],
        "nccl.comm.name": "0",
        "nccl.comm.desc": "default_pg",
        "nccl.comm.last_enqueued": 5,
        "nccl.comm.last_completed": 4,
    }
    assert expected.items() <= group.items()
    assert "nccl.comm.last_started" not in group
    assert "duration_ns" not in group


def test_a_dump_is_a_point_with_its_counts(tmp_path: Path) -> None:
    read = read_one(tmp_path, dump(entry(), entry(state="scheduled"), entry(state="started"), "no entry", {}))
    assert read.warnings == ("2 entries that are none (no profiling_name) were left out",)
    assert (read.rows, read.ranks, read.steps, read.world_size) == (5, 1, 0, 4)
    (point,) = points(read, "recorder.dump")
    assert (point["recorder.entries"], point["recorder.open"], point["recorder.version"]) == (5, 2, "2.9")
    assert (point["rank"], point["world_size"], point["source"]) == (1, 4, "nccl")


def test_an_empty_recorder_is_not_a_dump_without_a_list_of_entries(tmp_path: Path) -> None:
    (empty,) = points(read_one(tmp_path, dump()), "recorder.dump")
    assert (empty["recorder.entries"], empty["recorder.open"]) == (0, 0)
    basic = read_one(tmp_path, dump(entries=...))
    assert "1 dumps have no list of entries: what was open is not known" in basic.warnings
    (point,) = points(basic, "recorder.dump")
    assert "recorder.entries" not in point
    assert "recorder.open" not in point


def test_stacks_are_context_and_kept_once(tmp_path: Path) -> None:
    frames = [{"name": "all_reduce", "filename": "c10d.py", "line": 2696}, {"name": "main", "filename": "", "line": 0}]
    read = read_one(tmp_path, dump(entry(frames=frames), entry(frames=frames), entry(frames=[]), entry(frames=["f"])))
    assert read.context_rows == {"stacks": 2}
    stacks = [row for batch in read.context for row in batch.to_pylist()]
    assert [json.loads(row["attrs_json"])["ingero.stack.frames"] for row in stacks] == [
        ["all_reduce (c10d.py:2696)", "main"],
        ["f"],
    ]
    first, second, third, fourth = (row.get("stack_id") for row in calls(read))
    assert first == second == stacks[0]["stack_id"]
    assert (third, fourth) == (None, stacks[1]["stack_id"])
    assert len(str(first)) == 16
    assert {(row["metric_name"], row["source"], row["node_id"]) for row in stacks} == {("stack", "probe", "unknown")}


def test_operations_of_a_batch_have_the_state_of_the_batch(tmp_path: Path) -> None:
    never = {"state": "scheduled", "time_discovered_started_ns": None, "time_discovered_completed_ns": None}
    listed = [
        entry(collective_seq_id=4, **never),
        *(entry(collective_seq_id=5, op_id=n, **never) for n in (5, 6)),
        entry(collective_seq_id=5, profiling_name="nccl:coalesced", input_sizes=[], input_dtypes=[]),
        *(entry(profiling_name=f"nccl:send 1->{n}", is_p2p=True, p2p_seq_id=3, **never) for n in (0, 2)),
        entry(profiling_name="nccl:coalesced", is_p2p=True, p2p_seq_id=3, **never),
        entry(profiling_name="nccl:coalesced", collective_seq_id=6),
    ]
    read = read_one(tmp_path, dump(*listed))
    found = [
        (row["metric_name"], row.get("coll_seq"), row["nccl.state"], row.get("duration_ns")) for row in calls(read)
    ]
    assert found == [
        ("ncclAllReduce", 4, "scheduled", None),
        ("ncclAllReduce", 5, "completed", 5 * MS),
        ("ncclAllReduce", 5, "completed", 5 * MS),
        ("nccl.coalesced", None, "completed", 5 * MS),
        ("ncclSend", 3, "scheduled", None),
        ("ncclSend", 3, "scheduled", None),
        ("nccl.coalesced", None, "scheduled", None),
        # Its operations were pushed out of the buffer.
        ("nccl.coalesced", 6, "completed", 5 * MS),
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"0": {"name": "0", "desc": "default_pg", "ranks": [0, 1, 2, 3]}},
        {"0": {"desc": "default_pg", "ranks": "[0,1,2,3]"}},
        {0: {"name": "0", "desc": "default_pg", "ranks": (0, 1, 2, 3)}},
        {"7": {"name": "0", "desc": "default_pg", "ranks": [0, 1, 2, 3]}},
    ],
)
def test_groups_are_read_however_they_are_written(tmp_path: Path, config: Any) -> None:
    usual, other = (only_call(tmp_path), calls(read_one(tmp_path, dump(entry(), pg_config=config)))[0])
    assert other["comm_id"] == usual["comm_id"]
    assert (other["nranks"], other["nccl.rank"], other["world_size"]) == (4, 1, 4)


@pytest.mark.parametrize("ranks", ["[0, 1", "0-3", None, [0, 0], [-1], [2**40], "[]" * 3, 5])
def test_ranks_that_are_none_leave_the_size_unknown(tmp_path: Path, ranks: Any) -> None:
    read = read_one(tmp_path, dump(entry(), ranks=ranks))
    assert read.warnings == ("1 process groups whose ranks are no list of ranks",)
    (call,) = calls(read)
    assert "nranks" not in call
    assert "nccl.rank" not in call
    assert len(call["comm_id"]) == 16


def test_the_order_of_ranks_gives_the_place_but_not_the_identity(tmp_path: Path) -> None:
    forth, back = (calls(read_one(tmp_path, dump(entry(), ranks=ranks)))[0] for ranks in ([0, 1, 2, 3], [3, 2, 1, 0]))
    assert forth["comm_id"] == back["comm_id"]
    assert (forth["nccl.rank"], back["nccl.rank"]) == (1, 2)


def test_groups_that_only_have_a_number_join_nothing_but_the_first(tmp_path: Path) -> None:
    old = {"process_group": ..., "collective_seq_id": ..., "p2p_seq_id": ..., "is_p2p": ..., "seq_id": 12}
    value = dump(entry(pg_id=0, **old), entry(pg_id=3, **old), version="1.1", pg_config=..., pg_status=...)
    read = read_one(tmp_path, value)
    assert read.warnings == (
        "1 entries name their group only by a number of their own process: they join no communicator",
    )
    first, third = calls(read)
    assert (first["coll_seq"], third["coll_seq"]) == (12, 12)
    assert len(first["comm_id"]) == 16
    assert "comm_id" not in third
    assert read.world_size == 2


def test_the_bare_list_of_the_first_recorders_is_read(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / "job" / "_dump_2", [entry(process_group=..., seq_id=3, collective_seq_id=...)])
    read = open_file(path)
    assert [(row["metric_name"], row["coll_seq"], row["rank"]) for row in calls(read)] == [("ncclAllReduce", 3, 2)]


def test_a_group_named_by_text_alone_is_the_one_of_that_name(tmp_path: Path) -> None:
    assert only_call(tmp_path, process_group="0") == only_call(tmp_path, process_group="0")
    assert only_call(tmp_path, process_group="0")["comm_id"] == only_call(tmp_path)["comm_id"]


def test_an_entry_without_a_name_has_the_group_of_its_number(tmp_path: Path) -> None:
    config = {"0": {"name": "0", "ranks": [0, 1]}, "9": {"name": "9", "desc": "TP", "ranks": [1, 3]}}
    listed = [entry(process_group=("9", "TP"), pg_id=4), entry(process_group=..., pg_id=4)]
    named, numbered = calls(read_one(tmp_path, dump(*listed, pg_config=config)))
    assert numbered["comm_id"] == named["comm_id"]


def test_an_entry_of_a_group_that_is_not_described_is_in_no_other(tmp_path: Path) -> None:
    config = {"0": {"name": "0", "ranks": [0, 1]}, "9": {"name": "9", "desc": "TP", "ranks": [1, 3]}}
    listed = [entry(process_group=("9", "TP"), pg_id=4), entry(process_group=("10", "DP"), pg_id=4)]
    first, second = calls(read_one(tmp_path, dump(*listed, pg_config=config)))
    assert first["comm_id"] != second["comm_id"]
    assert (first["nranks"], second.get("nranks")) == (2, None)


def test_status_of_a_silent_rank_is_that_of_the_groups_in_order(tmp_path: Path) -> None:
    config = {name: {"name": name, "desc": f"d{name}", "ranks": [0, 1]} for name in ("0", "9", "10")}
    status = {number: {"last_enqueued_collective": int(number) * 100 + 1} for number in ("0", "2", "10")}
    read = read_one(tmp_path, dump(pg_config=config, pg_status=status))
    found = {row["nccl.comm.name"]: row["nccl.comm.last_enqueued"] for row in points(read, "nccl.communicator")}
    assert found == {"0": 1, "9": 201, "10": 1001}


@pytest.mark.parametrize(
    ("names", "entries"), [(("0", "9"), []), (("0", "9", "x"), []), (("0", "9", "10"), [("10", 2)])]
)
def test_status_that_cannot_be_placed_is_left_out(
    tmp_path: Path, names: tuple[str, ...], entries: list[tuple[str, int]]
) -> None:
    config = {name: {"name": name, "desc": "d", "ranks": [0, 1]} for name in names}
    status = {number: {"last_enqueued_collective": int(number) + 1} for number in ("0", "2", "10")}
    listed = [entry(process_group=(name, "d"), pg_id=number) for name, number in entries]
    read = read_one(tmp_path, dump(*listed, pg_config=config, pg_status=status))
    found = {row["nccl.comm.name"]: row.get("nccl.comm.last_enqueued") for row in points(read, "nccl.communicator")}
    assert {name for name, last in found.items() if last is not None} == {name for name, _ in entries}


def test_status_in_json_is_text(tmp_path: Path) -> None:
    value = dump(pg_status={"0": {"last_enqueued_collective": "12", "last_completed_collective": "-1"}})
    (group,) = points(open_file(write_json(tmp_path / "dump_1.json", value)), "nccl.communicator")
    assert group["nccl.comm.last_enqueued"] == 12
    assert "nccl.comm.last_completed" not in group


def test_ranks_that_never_used_the_default_group_join_the_same_communicator(tmp_path: Path) -> None:
    both = {"3": {"name": "3", "desc": "DP", "ranks": [0, 5]}}
    all_ = {"0": {"name": "0", "desc": "default_pg", "ranks": list(range(16))}}
    facts = entry(process_group=("3", "DP"), pg_id=1)
    first = read_one(tmp_path, dump(facts, pg_config=both | all_), "_dump_0")
    second = read_one(tmp_path, dump(facts, pg_config=both), "_dump_5")
    assert (first.world_size, second.world_size) == (16, 6)
    assert calls(first)[0]["comm_id"] == calls(second)[0]["comm_id"]


@pytest.mark.parametrize("time", [..., None, 0, -5, 12_345, "never", 2**63, 10**19, 1.5])
def test_an_entry_without_a_time_that_can_be_true_is_put_at_the_latest(tmp_path: Path, time: Any) -> None:
    read = read_one(tmp_path, dump(entry(), entry(time_created_ns=time)))
    assert read.warnings == ("1 entries have no time that can be true: they are put at the latest time of their dump",)
    call = calls(read)[1]
    assert call["timestamp_ns"] == START_NS + 5 * MS
    assert "duration_ns" not in call
    assert call.get("recorder.time_created_ns") == (time if time in (0, 12_345) else None)


def test_an_end_before_the_call_is_no_duration(tmp_path: Path) -> None:
    assert "duration_ns" not in only_call(tmp_path, time_discovered_completed_ns=START_NS - 1)


def test_text_from_a_dump_stays_text(tmp_path: Path) -> None:
    value = dump(entry(thread_name="a\ud800b\0\n", process_group=("\udfff", "x")), version="2.9\udc00")
    read = open_file(write_json(tmp_path / "dump_1.json", value))
    (call,) = calls(read)
    assert call["thread.name"] == "a?b\0\n"
    with open_store(None) as store:
        assert put(open_file(tmp_path / "dump_1.json"), store) == read.rows
