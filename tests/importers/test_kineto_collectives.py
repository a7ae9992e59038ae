"""Collectives of a profiler trace: their names, sizes, communicators and numbers, across versions of the profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingero_mcp.importers.kineto.operations import datatype, is_nccl_kernel, operation
from tests.importers.kineto_job import BASE_NS, Job, document, kernel
from tests.importers.test_kineto import attrs, events_of, named, read

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def collectives(folder: Path, *events: object, **members: object) -> list[dict[str, Any]]:
    rows = events_of(read(folder, document(*events, **members)))
    return [row for row in rows if row["source"] == "nccl" and row["metric_name"] != "nccl.communicator"]


@pytest.mark.parametrize(("said", "name"), [
    ("allreduce", "ncclAllReduce"), ("allreduce_coalesced", "ncclAllReduce"), ("barrier", "ncclAllReduce"),
    ("_allgather_base", "ncclAllGather"), ("all_gather_into_tensor_coalesced", "ncclAllGather"),
    ("_reduce_scatter_base", "ncclReduceScatter"), ("reduce_scatter_tensor_coalesced", "ncclReduceScatter"),
    ("broadcast", "ncclBroadcast"), ("_broadcast_oop", "ncclBroadcast"), ("reduce", "ncclReduce"),
    ("all_to_all", "ncclAlltoAll"), ("all_to_allv", "ncclAlltoAll"), ("gather", "ncclGather"),
    ("scatter", "ncclScatter"), ("send", "ncclSend"), ("nccl:recv 0<-1", "ncclRecv"),
    ("c10d::alltoall_base_", "ncclAlltoAll"), ("record_param_comms", ""), ("nccl:coalesced", ""), ("wait", ""),
])  # fmt: skip
def test_every_spelling_of_a_collective_has_one_name(said: str, name: str) -> None:
    assert operation(said) == name


@pytest.mark.parametrize(("kernel_name", "name"), [
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclAllReduce"),
    ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "ncclAllGather"),
    ("ncclKernel_ReduceScatter_RING_LL_Sum_half", "ncclReduceScatter"),
    ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "ncclAllReduce"),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "ncclSendRecv"),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", ""),
])  # fmt: skip
def test_kernels_of_nccl_are_known_by_name(kernel_name: str, name: str) -> None:
    assert is_nccl_kernel(kernel_name)
    assert operation(kernel_name) == name


def test_kernels_of_others_are_no_collectives() -> None:
    assert not is_nccl_kernel("void at::native::reduce_kernel<512, 1>(float*)")
    assert not is_nccl_kernel("my_ncclKernel_AllReduce")


@pytest.mark.parametrize(("name", "known"), [
    ("BFloat16", ("bfloat16", 2)), ("c10::BFloat16", ("bfloat16", 2)), ("Float", ("float32", 4)),
    ("long int", ("int64", 8)), ("unsigned char", ("uint8", 1)), ("Float8_e4m3fn", ("float8e4m3", 1)),
    ("Half", ("float16", 2)), ("quint4x2", ("quint4x2", 0)),
])  # fmt: skip
def test_element_types_get_the_names_of_nccl(name: str, known: tuple[str, int]) -> None:
    assert datatype(name) == known


@pytest.mark.parametrize(("said", "count", "amount"), [
    ("allreduce", 10, 40),
    ("_allgather_base", 10, 40),
    ("_reduce_scatter_base", 80, 320),
    ("all_to_allv", None, 40),
])  # fmt: skip
def test_counts_are_those_that_nccl_is_called_with(tmp_path: Path, said: str, count: int | None, amount: int) -> None:
    one = kernel(1, **{"Collective name": said, "In msg nelems": 10, "Out msg nelems": 80})
    (row,) = collectives(tmp_path, one)
    assert (attrs(row).get("nccl.count"), attrs(row)["nccl.datatype"], row["bytes"]) == (count, "float32", amount)


def test_a_kernel_is_named_by_what_the_program_asked_for(tmp_path: Path) -> None:
    (row,) = collectives(tmp_path, kernel(1, name=SEND_RECV, **{"Collective name": "all_to_all"}))
    assert row["metric_name"] == "ncclAlltoAll"
    assert attrs(row)["gpu.kernel.name"] == SEND_RECV


def test_kernels_that_say_nothing_are_traced_to_the_operator_that_launched_them(tmp_path: Path) -> None:
    rows = named(events_of(read(tmp_path, Job(style="linked").trace(0))), "ncclAllReduce")
    assert {(attrs(row)["nccl.count"], attrs(row)["nccl.datatype"], row["bytes"]) for row in rows} == {
        (2048, "bfloat16", 4096)
    }


def test_an_external_id_links_a_kernel_to_its_operator(tmp_path: Path) -> None:
    told = kernel(0, name="")["args"] | {"External id": 77}
    operator = {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    bare = kernel(5) | {"args": {"External id": 77, "correlation": 5, "stream": 7}}
    (row,) = collectives(tmp_path, operator | {"args": told}, bare)
    assert (row["nranks"], attrs(row)["nccl.count"]) == (2, 1024)


def test_members_of_a_group_share_a_communicator_and_others_do_not(tmp_path: Path) -> None:
    def comm(**args: str) -> str:
        (row,) = collectives(tmp_path, kernel(1, **{f"Process Group {key}": value for key, value in args.items()}))
        return str(row["comm_id"])

    assert comm(Name="0", Ranks="[0, 1]") == comm(Name="0", Ranks="[0,1]")
    different = {
        comm(Name="0", Ranks="[0, 1]"),
        comm(Name="0", Ranks="[2, 3]"),
        comm(Name="1", Ranks="[0, 1]"),
        comm(Name="0", Ranks="[0, 1, ..., 127]"),
        comm(Name="0", Ranks="[0, 1, ..., 255]"),
    }
    assert len(different) == 5
    assert all(len(one) == 16 and set(one) <= set("0123456789abcdef") for one in different)


def test_a_communicator_tells_its_members_once(tmp_path: Path) -> None:
    args = {"Process Group Description": "default_pg", "Process Group Ranks": "[4, 0]"}
    content = document(kernel(1, **args), kernel(2, **args), distributedInfo={"rank": "4", "world_size": 8})
    rows = events_of(read(tmp_path, content))
    (point,) = named(rows, "nccl.communicator")
    assert attrs(point) == {"nccl.comm.name": "0", "nccl.comm.desc": "default_pg", "nccl.comm.ranks": [4, 0]}
    assert (point["nranks"], point["rank"], point["duration_ns"], point["timing_source"]) == (2, 4, None, None)
    assert {row["comm_id"] for row in rows} == {point["comm_id"]}
    assert [attrs(row)["nccl.rank"] for row in named(rows, "ncclAllReduce")] == [0, 0]


def test_an_abbreviated_list_of_members_is_completed_from_the_list_of_groups(tmp_path: Path) -> None:
    config = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 40, "ranks": list(range(40))}]
    info = {"rank": 3, "world_size": 40, "pg_config": config}
    one = kernel(1, **{"Process Group Ranks": "[0, 1, ..., 39]", "Group size": 40})
    rows = events_of(read(tmp_path, document(one, distributedInfo=info)))
    (point,), (call,) = named(rows, "nccl.communicator"), named(rows, "ncclAllReduce")
    assert attrs(point)["nccl.comm.ranks"] == list(range(40))
    assert attrs(call)["nccl.rank"] == 3
    (alone,) = named(events_of(read(tmp_path, document(one))), "nccl.communicator")
    assert "nccl.comm.ranks" not in attrs(alone)


def test_upstream_numbers_are_kept_and_make_one_trace_of_all_ranks(tmp_path: Path) -> None:
    ranks = [named(events_of(read(tmp_path, Job(style="numbered").trace(rank))), "ncclAllReduce") for rank in (0, 1)]
    assert [[row["coll_seq"] for row in rows] for rows in ranks] == [[40, 41, 42]] * 2
    assert {attrs(row)["ingero.seq_origin"] for rows in ranks for row in rows} == {"init"}
    assert [row["trace_id"] for row in ranks[0]] == [row["trace_id"] for row in ranks[1]]
    assert len({row["trace_id"] for row in ranks[0]}) == 3


def test_without_upstream_numbers_collectives_are_counted_per_communicator(tmp_path: Path) -> None:
    other = {"Process Group Name": "9"}
    rows = collectives(tmp_path, kernel(4), kernel(1), kernel(2, **other), kernel(3, **other))
    assert [row["coll_seq"] for row in rows] == [0, 0, 1, 1]
    assert {(attrs(row)["ingero.seq_origin"], row["trace_id"]) for row in rows} == {("attach", None)}
    warning = "4 of 4 collectives do not tell their sequence number"
    assert any(
        text.startswith(warning)
        for text in read(tmp_path, document(kernel(1), kernel(2), kernel(3), kernel(4))).warnings
    )


def test_several_kernels_with_one_number_are_one_collective(tmp_path: Path) -> None:
    rows = collectives(tmp_path, kernel(10, 5, Seq=3), kernel(13, 7, Seq=3), kernel(30, 5, Seq=4))
    assert [(row["timestamp_ns"] - BASE_NS, row["duration_ns"]) for row in rows] == [(10_000, 10_000), (30_000, 5_000)]


def test_without_a_group_the_stream_stands_for_the_communicator(tmp_path: Path) -> None:
    bare = {"Process Group Name": None, "Process Group Ranks": None}
    one, two, three = kernel(1, **bare), kernel(2, stream=8, **bare), kernel(3, **bare)
    rows = collectives(tmp_path, one, two, three)
    assert [row["coll_seq"] for row in rows] == [0, 0, 1]
    assert rows[0]["comm_id"] == rows[2]["comm_id"] != rows[1]["comm_id"]
    assert [row["nranks"] for row in rows] == [2, 2, 2]
    result = read(tmp_path, document(one, two, three))
    assert any("3 of 3 collectives do not name their process group" in text for text in result.warnings)


def test_sends_and_receives_know_their_other_end(tmp_path: Path) -> None:
    group = {"Process Group Ranks": "[4, 5, 6]", "Group size": 3}

    def p2p(ts: int, direction: str, **args: object) -> dict[str, Any]:
        return kernel(ts, name=SEND_RECV, **{"Collective name": direction, **group, **args})

    events = [
        p2p(1, "send", **{"Dst Rank": 6}),
        p2p(2, "recv", **{"Src Rank": 4}),
        p2p(3, "send", **{"Dst Rank": 6, "Seq": 17}),
        p2p(4, "send", **{"Dst Rank": 4}),
        p2p(5, "send"),
    ]
    rows = collectives(tmp_path, *events, distributedInfo={"rank": 5, "world_size": 8})
    facts = [
        (row["metric_name"], row["coll_seq"], attrs(row).get("nccl.rank"), attrs(row).get("nccl.peer_rank"))
        for row in rows
    ]
    assert facts == [
        ("ncclSend", 0, 1, 2),
        ("ncclRecv", 0, 1, 0),
        ("ncclSend", 1, 1, 2),
        ("ncclSend", 0, 1, 0),
        ("ncclSendRecv", 0, 1, None),
    ]
    assert {attrs(row)["ingero.seq_origin"] for row in rows} == {"attach"}


def test_in_a_group_of_two_the_other_end_is_the_other_one(tmp_path: Path) -> None:
    (row,) = collectives(tmp_path, kernel(1, name=SEND_RECV, **{"Collective name": "recv"}))
    assert (row["metric_name"], attrs(row)["nccl.rank"], attrs(row)["nccl.peer_rank"]) == ("ncclRecv", 0, 1)


def test_annotations_stand_in_where_no_kernel_of_nccl_ran(tmp_path: Path) -> None:
    def annotation(ts: float, name: str) -> dict[str, Any]:
        return {"ph": "X", "cat": "gpu_user_annotation", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": 10}

    rows = collectives(tmp_path, annotation(0.999, "nccl:all_reduce"), kernel(1), annotation(50, "nccl:all_gather"))
    assert [(row["metric_name"], row["timing_source"]) for row in rows] == [
        ("ncclAllReduce", "kernel_gpu"),
        ("ncclAllGather", "kernel_gpu"),
    ]


def test_a_trace_of_the_cpu_has_its_collectives_as_the_host_saw_them(tmp_path: Path) -> None:
    trace = Job(style="named").trace(0)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("pid") != 0]
    result = read(tmp_path, trace)
    rows = named(events_of(result), "ncclAllReduce")
    assert [(row["timing_source"], row["tid"], row["coll_seq"]) for row in rows] == [
        ("host_api", 4000, 0),
        ("host_api", 4000, 1),
        ("host_api", 4000, 2),
    ]
    assert any("timed on the host" in text for text in result.warnings)
