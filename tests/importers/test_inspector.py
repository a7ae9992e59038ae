"""What becomes of the lines of an NCCL Inspector log."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.registry import open_file
from tests.importers.inspector_log import (
    BEGIN_US,
    collective,
    header,
    marker,
    metadata,
    p2p,
    p2p_perf,
    verbose,
    write,
)

LOG = "nccl-inspector-77/node-a-pid4242.log"


def events_of(result: Import) -> list[dict[str, Any]]:
    batches = list(result.batches)
    assert all(batch.schema == ARROW_SCHEMA for batch in batches)
    events = pa.Table.from_batches(batches).to_pylist()
    assert len(events) == result.rows
    return events


def attrs(event: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(event["attrs_json"])
    assert isinstance(found, dict)
    return found


def test_a_collective_of_a_verbose_log_keeps_everything_it_says(tmp_path: Path) -> None:
    at = header(rank=3, nranks=8, comm_name="default_pg")
    trace = verbose((BEGIN_US - 900, BEGIN_US - 905), enqueued_us=BEGIN_US - 2000)
    record = collective(5, at=at, coll_algo="RING", coll_proto="LL", **trace)
    result = open_file(write(tmp_path / LOG, record))
    [event] = events_of(result)
    assert (result.kind, result.ranks, result.steps, result.world_size) == ("NCCL Inspector log", 1, 0, 8)
    named = attrs(event)
    trace_id = event["trace_id"]
    assert {key: value for key, value in event.items() if value is not None} == {
        "cluster_id": "unknown",
        "node_id": "node-a",
        "job_id": "inspector:nccl-inspector-77",
        "event_seq": event["event_seq"],
        "timestamp_ns": (BEGIN_US - 905) * 1000,
        "duration_ns": 400_000,
        "source": "nccl",
        "metric_name": "ncclAllReduce",
        "rank": 3,
        "nranks": 8,
        "world_size": 8,
        "pid": 4242,
        "comm_id": "0051c0ffee51c0ff",
        "coll_seq": 5,
        "bytes": 1 << 20,
        "timing_source": "kernel_gpu",
        "trace_id": trace_id,
        "attrs_json": event["attrs_json"],
    }
    assert len(trace_id) == 32
    assert int(trace_id[16:]) == 5
    assert named == {
        "nccl.op_type": "ncclAllReduce",
        "nccl.rank": 3,
        "ingero.seq_origin": "init",
        "nccl.comm_hash": "0x51c0ffee51c0ff",
        "nccl.comm.name": "default_pg",
        "nccl.algobw_gbs": 2.6,
        "nccl.busbw_gbs": 4.55,
        "nccl.algo": "RING",
        "nccl.proto": "LL",
    }


def test_without_a_trace_the_start_is_the_dump_less_the_duration_and_says_so(tmp_path: Path) -> None:
    result = open_file(write(tmp_path / LOG, collective(exec_us=250)))
    [event] = events_of(result)
    assert event["timestamp_ns"] == (BEGIN_US - 250) * 1000
    assert attrs(event)["ingero.time_base"] == "dump"
    assert any("1 operations do not say when they started" in warning for warning in result.warnings)


def test_without_kernel_times_a_verbose_log_tells_when_the_operation_was_enqueued(tmp_path: Path) -> None:
    [event] = events_of(open_file(write(tmp_path / LOG, collective(**verbose((0,), enqueued_us=BEGIN_US - 7)))))
    assert event["timestamp_ns"] == (BEGIN_US - 7) * 1000
    assert attrs(event)["ingero.time_base"] == "enqueue"


@pytest.mark.parametrize("timing", ["kernel_cpu", "collective_cpu", "unknown", "", None])
def test_only_what_the_gpu_timed_is_a_waiting_time(tmp_path: Path, timing: str | None) -> None:
    record = collective(coll_timing_source=timing)
    result = open_file(write(tmp_path / LOG, record))
    [event] = events_of(result)
    assert event["timing_source"] == "host_api"
    assert attrs(event).get("nccl.timing_source") == (timing or None)
    assert "1 operations were not timed on the GPU" in result.warnings


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("AllReduce", "ncclAllReduce"),
        ("AllGather", "ncclAllGather"),
        ("ReduceScatter", "ncclReduceScatter"),
        ("Broadcast", "ncclBroadcast"),
        ("Reduce", "ncclReduce"),
        ("All2All", "ncclAlltoAll"),
        ("AllGatherV", "ncclAllGatherV"),
        ("Hypercube", "ncclHypercube"),
    ],
)
def test_functions_have_the_names_of_the_calls(tmp_path: Path, function: str, name: str) -> None:
    [event] = events_of(open_file(write(tmp_path / LOG, collective(3, function))))
    assert (event["metric_name"], event["coll_seq"], event["source"]) == (name, 3, "nccl")


def test_each_function_of_a_communicator_is_counted_by_itself(tmp_path: Path) -> None:
    """NCCL counts per function: the same number twice on one communicator is not one operation."""
    logs = [
        write(tmp_path / "job" / f"node-a-pid{rank}.log",
              *(collective(n, coll, at=header(rank, 2), by=metadata(pid=rank)) for n in range(3)
                for coll in ("AllReduce", "AllGather", "ReduceScatter")))
        for rank in range(2)
    ]  # fmt: skip
    events = [event for log in logs for event in events_of(open_file(log))]
    operations: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for event in events:
        operations.setdefault((event["comm_id"], event["coll_seq"]), []).append(event)
    assert len(operations) == 9
    for together in operations.values():
        assert [event["rank"] for event in together] == [0, 1]
        assert len({event["metric_name"] for event in together}) == 1
        assert len({event["trace_id"] for event in together}) == 1
    assert len({event["trace_id"] for event in events}) == 9
    assert {comm_id[2:] for comm_id, _ in operations} == {"51c0ffee51c0ff"}
    assert {attrs(event)["nccl.comm_hash"] for event in events} == {"0x51c0ffee51c0ff"}


def test_numbers_of_functions_that_inspector_has_no_name_for_are_not_used(tmp_path: Path) -> None:
    events = events_of(open_file(write(tmp_path / LOG, collective(4, "Invalid"), collective(4, "Invalid"))))
    assert [(event["metric_name"], event["coll_seq"], event["trace_id"]) for event in events] == [
        ("ncclUnknown", None, None)
    ] * 2


def test_numbers_that_repeat_are_not_used(tmp_path: Path) -> None:
    result = open_file(write(tmp_path / LOG, collective(7), collective(7), collective(8), collective(0, "Reduce")))
    assert [event["coll_seq"] for event in events_of(result)] == [None, None, None, 0]
    assert any(warning.startswith("3 collectives have no number") for warning in result.warnings)


def test_a_log_that_is_a_sample_says_how_much_is_missing(tmp_path: Path) -> None:
    records = [collective(n) for n in (2, 5, 6)] + [collective(n, "AllGather") for n in (0, 1)]
    result = open_file(write(tmp_path / LOG, *records))
    assert "2 collectives between the first and the last are not in the log" in result.warnings
    assert [event["coll_seq"] for event in events_of(result)] == [2, 5, 6, 0, 1]


# Ranks


def test_the_rank_in_the_largest_communicator_is_that_of_the_process(tmp_path: Path) -> None:
    small = header(rank=1, nranks=2, comm="0xabc")
    result = open_file(write(tmp_path / LOG, collective(0, at=small), collective(0, at=header(rank=6, nranks=8))))
    events = events_of(result)
    assert [(event["rank"], event["nranks"], event["world_size"]) for event in events] == [(6, 2, 8), (6, 8, 8)]
    assert [attrs(event)["nccl.rank"] for event in events] == [1, 6]
    assert any("the largest communicator has 8 ranks" in warning for warning in result.warnings)


def test_a_process_with_two_ranks_of_that_size_has_none(tmp_path: Path) -> None:
    """Two communicators of one size that disagree: neither spans the job."""
    records = [collective(0, at=header(rank, 4, comm)) for rank, comm in ((1, "0xa"), (3, "0xb"))]
    result = open_file(write(tmp_path / LOG, *records))
    assert (result.ranks, result.world_size) == (0, None)
    assert {(event["rank"], event["world_size"]) for event in events_of(result)} == {(None, None)}
    assert any(warning.startswith("1 processes have no global rank") for warning in result.warnings)


def test_a_process_that_drives_all_gpus_has_the_rank_of_each_record(tmp_path: Path) -> None:
    records = [collective(0, at=header(rank, 4)) for rank in range(4)]
    records.append(collective(0, at=header(0, 2, comm="0xd")))
    result = open_file(write(tmp_path / LOG, *records))
    assert result.ranks == 4
    assert [event["rank"] for event in events_of(result)] == [0, 1, 2, 3, None]
    assert [event["coll_seq"] for event in events_of(open_file(tmp_path / LOG))] == [0] * 5


def test_a_log_of_several_processes_knows_the_rank_of_each(tmp_path: Path) -> None:
    records = [collective(0, at=header(rank, 2), by=metadata(pid=10 + rank)) for rank in (1, 0)]
    records.append(collective(0, at=header(0, 1, comm="0xe"), by=metadata(pid=99)))
    events = events_of(open_file(write(tmp_path / "all.jsonl", *records)))
    assert [(event["pid"], event["rank"]) for event in events] == [(11, 1), (10, 0), (99, None)]


def test_more_processes_than_the_largest_communicator_has_ranks_have_no_global_ranks(tmp_path: Path) -> None:
    """A pipeline whose stages never meet in one communicator."""
    logs = [
        write(tmp_path / f"node-a-pid{n}.log", collective(at=header(n % 2, 2, f"0x{n // 2 + 1}"), by=metadata(pid=n)))
        for n in range(4)
    ]
    results = [open_file(log) for log in logs]
    assert [result.ranks for result in results] == [0] * 4
    assert all("processes have no global rank" in " ".join(result.warnings) for result in results)
    logs[3].unlink()
    logs[2].unlink()
    assert [open_file(log).ranks for log in logs[:2]] == [1, 1]


def test_logs_of_other_runs_in_the_folder_do_not_count(tmp_path: Path) -> None:
    hour_us = 3_600_000_000
    logs = [
        write(tmp_path / f"node-a-pid{n}.log", collective(at=header(n % 2, 2, f"0x{n // 2 + 1}"),
                                                          by=metadata(BEGIN_US + n // 2 * hour_us, pid=n)))
        for n in range(2)
    ]  # fmt: skip
    for n in (2, 3):
        write(tmp_path / f"node-a-pid{n}.log", collective(at=header(n % 2, 2), by=metadata(BEGIN_US + hour_us, pid=n)))
    assert [event["rank"] for log in logs for event in events_of(open_file(log))] == [0, 1]


# Sends and receives


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=25), st.randoms())
def test_both_ends_of_a_transfer_count_it_alike(transfers: list[tuple[int, int]], rng: Any) -> None:
    """However many peers there are, and in whichever order operations end."""
    with TemporaryDirectory() as folder:
        ends: list[dict[str, Any]] = []
        for rank in range(3):
            mine = [("Send", peer) for source, peer in transfers if source == rank]
            mine += [("Recv", peer) for peer, target in transfers if target == rank]
            records = [
                p2p(sn, kind, peer, at=header(rank, 3), by=metadata(pid=rank + 1))
                for sn, (kind, peer) in enumerate(mine, 1)
            ]
            rng.shuffle(records)
            if records:
                ends += events_of(open_file(write(Path(folder) / f"n-pid{rank}.log", *records)))
    seen: dict[str, list[tuple[str, int, int, int]]] = {}
    for event in ends:
        own, peer = attrs(event)["nccl.rank"], attrs(event)["nccl.peer_rank"]
        route = (own, peer) if event["metric_name"] == "ncclSend" else (peer, own)
        seen.setdefault(event["trace_id"], []).append((event["metric_name"], *route, event["coll_seq"]))
    assert len(seen) == len(transfers)
    for two in seen.values():
        assert sorted(name for name, *_ in two) == ["ncclRecv", "ncclSend"]
        assert two[0][1:] == two[1][1:]
    assert len({event["comm_id"] for event in ends}) == 1


def test_sends_are_not_numbered_where_some_are_missing(tmp_path: Path) -> None:
    result = open_file(write(tmp_path / LOG, p2p(1, "Send", 1), p2p(3, "Send", 1)))
    assert [(event["coll_seq"], event["trace_id"]) for event in events_of(result)] == [(None, None)] * 2
    assert any(warning.startswith("2 sends and receives have no number") for warning in result.warnings)


def test_a_send_of_a_verbose_log_starts_with_its_kernel(tmp_path: Path) -> None:
    trace = verbose((BEGIN_US - 60,), BEGIN_US - 100, kind="p2p")
    [event] = events_of(open_file(write(tmp_path / LOG, p2p(1, "Recv", 2, **trace))))
    assert (event["metric_name"], event["timestamp_ns"], event["duration_ns"]) == (
        "ncclRecv",
        (BEGIN_US - 60) * 1000,
        50_000,
    )


# Format v4.3 and later: context in the record that begins a dump


def test_records_without_context_belong_to_the_dump_that_they_follow(tmp_path: Path) -> None:
    world, half = header(rank=5, nranks=8), header(rank=1, nranks=4, comm="0xbeef")
    records = [
        marker(2, 1, at=world, proxy_records=1),
        {"coll_perf": collective(0)["coll_perf"]},
        {"coll_perf": collective(1)["coll_perf"]},
        {"p2p_perf": p2p_perf(1, "Send", 6)},
        {"proxy_trace": {"record_type": "proxy_op", "proxy_op_sn": 1}},
        marker(1, at=half, coll_dropped_since_last_dump=3),
        {"coll_perf": collective(9, "ReduceScatter")["coll_perf"]},
    ]
    result = open_file(write(tmp_path / LOG, *records))
    events = events_of(result)
    assert [(event["metric_name"], event["nranks"], event["rank"], event["coll_seq"]) for event in events] == [
        ("ncclAllReduce", 8, 5, 0),
        ("ncclAllReduce", 8, 5, 1),
        ("ncclSend", 8, 5, 0),
        ("ncclReduceScatter", 4, 5, 9),
    ]
    assert events[3]["comm_id"] == "020000000000beef"
    assert "1 traces of the network proxy were left out" in result.warnings
    assert "Inspector dropped 3 operations before it could write them" in result.warnings
    assert not any("skipped" in warning for warning in result.warnings)


def test_records_of_a_dump_whose_beginning_is_lost_are_put_down_to_nobody(tmp_path: Path) -> None:
    bare = {"coll_perf": collective(0)["coll_perf"]}
    records: list[Any] = [marker(3), bare, "}{", bare, bare, marker(1), bare, bare]
    result = open_file(write(tmp_path / LOG, *records))
    assert result.rows == 2
    assert result.warnings[0] == "4 lines were skipped; the first of them: not JSON"


def test_processes_whose_lines_are_equal_have_different_numbers(tmp_path: Path) -> None:
    bare = {"coll_perf": collective(0)["coll_perf"]}
    logs = [
        write(tmp_path / f"node-a-pid{pid}.log", marker(1, by=metadata(pid=pid, version="v4.3")), bare)
        for pid in (7, 8)
    ]
    first, second = (events_of(open_file(log))[0]["event_seq"] for log in logs)
    assert first != second


def test_a_format_that_is_not_known_is_said_so(tmp_path: Path) -> None:
    result = open_file(write(tmp_path / LOG, collective(by=metadata(version="v5.0"))))
    assert any(warning.startswith("format v5.0 is not known here") for warning in result.warnings)


# Names


@pytest.mark.parametrize("host", ["", "a:b"])
def test_a_host_that_cannot_be_a_node_is_named_by_who_imports(tmp_path: Path, host: str) -> None:
    path = write(tmp_path / LOG, collective(by=metadata(host=host)))
    [event] = events_of(open_file(path, Names(node="told", cluster="c1")))
    assert (event["node_id"], event["cluster_id"]) == ("told", "c1")
    assert attrs(event).get("host.name") == (host or None)


def test_the_job_is_named_after_the_folder(tmp_path: Path) -> None:
    path = write(tmp_path / ("run 7;" + "x" * 200) / "a.log", collective())
    [event] = events_of(open_file(path))
    assert event["job_id"] == "inspector:run_7_" + "x" * 94


def test_records_of_one_batch_and_the_next_are_numbered_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero_mcp.importers.inspector.events._BATCH_ROWS", 2)
    result = open_file(write(tmp_path / LOG, *(collective(n) for n in range(5))))
    events = events_of(result)
    assert [event["event_seq"] - events[0]["event_seq"] for event in events] == list(range(5))
    assert events[-1]["event_seq"] < 2**51
