"""Databases of the Ingero agent become events and context: what every value means, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.ingero import agent as ingero_agent
from ingero_mcp.importers.ingero import events as ingero_events
from ingero_mcp.importers.ingero import survey as ingero_survey
from ingero_mcp.importers.registry import open_file
from tests.importers.ingero_lookalike import MS, START_NS, chain, change, event, session, write


def rows(read: Import) -> list[dict[str, Any]]:
    return [row for batch in read.batches for row in batch.to_pylist()]


def context(read: Import, metric_name: str) -> list[dict[str, Any]]:
    found = [row for batch in read.context for row in batch.to_pylist() if row["metric_name"] == metric_name]
    return [row | json.loads(row["attrs_json"]) for row in found]


def one(path: Path, version: str = "0.9", **values: Any) -> dict[str, Any]:
    """The event that a single row becomes."""
    [row] = rows(open_file(write(path / "one.db", version, events=[event(1, **values)])))
    return row


def test_a_row_becomes_an_event_with_the_agents_names(tmp_path: Path) -> None:
    row = one(tmp_path, gpu_id=2, arg0=4096, arg1=-5, stack_hash=-2, cgroup_id=9, rank=3, local_rank=1, world_size=8)
    expected = {
        "cluster_id": "unknown", "node_id": "n1", "event_seq": 1, "timestamp_ns": START_NS + MS, "duration_ns": 1000,
        "source": "cuda", "metric_name": "cudaMalloc", "pid": 7, "tid": 8, "rank": 3, "local_rank": 1, "world_size": 8,
        "bytes": 4096, "timing_source": "host_api", "status": "ok", "stack_id": "fffffffffffffffe",
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert json.loads(row["attrs_json"]) == {
        "ingero.gpu_id": 2, "ingero.arg0": 4096, "ingero.arg1": -5, "ingero.cgroup_id": 9,
    }  # fmt: skip
    assert all(row[name] is None for name in row.keys() - expected.keys() - {"attrs_json"})


@pytest.mark.parametrize(
    ("source", "op", "name", "kind", "ended"),
    [
        (1, 1, "cudaMalloc", "cuda", False),
        (1, 10, "cudaMemcpy2DAsync", "cuda", False),
        (3, 1, "sched_switch", "host", True),
        (3, 21, "sched_switch_summary", "host", True),
        (4, 5, "cuMemAlloc", "driver", False),
        (5, 2, "block_write", "io", True),
        (6, 1, "tcp_retransmit", "tcp", True),
        (7, 2, "net_recv", "net", True),
        (8, 4, "graphLaunch", "graph", False),
        (9, 3, "ncclAllReduce", "nccl", False),
        (1, 99, "op.cuda.99", "cuda", False),
        (3, 8, "op.host.8", "host", True),
    ],
)
def test_codes_become_names_and_every_time_is_the_beginning(
    tmp_path: Path, source: int, op: int, name: str, kind: str, ended: bool
) -> None:
    row = one(tmp_path, source=source, op=op, duration=400)
    assert (row["metric_name"], row["source"]) == (name, kind)
    assert row["timestamp_ns"] == START_NS + MS - (400 if ended else 0)
    assert row["duration_ns"] == 400
    assert (row["timing_source"] is None) == (row["status"] is None) == ended


@pytest.mark.parametrize(
    ("source", "op", "arg0", "arg1", "size"),
    [
        (1, 8, 10, 0, 10),
        (1, 2, 0x7F00, 0, None),
        (1, 2, 0x7F00, 64, 64),
        (1, 7, 11, 1, 11),
        (1, 3, 0x7F00, 5, None),
        (1, 5, 3, 0, None),
        (4, 2, 12, 0, 12),
        (4, 1, 13, 0, None),
        (3, 3, 4096, 0, 4096),
        (3, 20, 3, 8192, 8192),
        (3, 1, 3, 7, None),
        (5, 1, 8, 99, 4096),
        (5, 3, 2**60, 99, None),
        (6, 1, 3, 7, None),
        (7, 1, 5, 388, 388),
        (1, 1, -1, 0, None),
        (1, 1, 0, 0, 0),
    ],
)
def test_bytes_are_where_the_operation_keeps_them(
    tmp_path: Path, source: int, op: int, arg0: int, arg1: int, size: int | None
) -> None:
    assert one(tmp_path, source=source, op=op, arg0=arg0, arg1=arg1)["bytes"] == size


@pytest.mark.parametrize(
    ("source", "op", "arg1", "timing"),
    [(1, 5, 0, "host_sync"), (1, 6, 0, "host_sync"), (4, 4, 0, "host_sync"), (1, 4, 2, "host_sync"),
     (1, 4, 1, "host_api"), (1, 7, 2, "host_api"), (1, 2, 2, "host_api")],
)  # fmt: skip
def test_a_call_is_host_sync_where_the_host_waits_in_it(
    tmp_path: Path, source: int, op: int, arg1: int, timing: str
) -> None:
    assert one(tmp_path, source=source, op=op, arg1=arg1)["timing_source"] == timing


def test_a_return_code_is_the_status_of_a_call(tmp_path: Path) -> None:
    row = one(tmp_path, ret_code=2)
    assert row["status"] == "error"
    assert json.loads(row["attrs_json"])["ingero.ret_code"] == 2


def test_numbers_of_0_8_are_kept_and_make_ids_that_no_other_file_has(tmp_path: Path) -> None:
    found = []
    for name, pid in (("a.db", 1), ("b.db", 2)):
        path = write(tmp_path / name, "0.8", events=[event(n, None, pid=pid) for n in (0, 1, 2**31)])
        read = open_file(path)
        assert "3 events do not say their node" in read.warnings[0]
        found.append(rows(read))
    for file in found:
        assert [json.loads(row["attrs_json"])["ingero.id"] for row in file] == [0, 1, 2**31]
        first = file[0]["event_seq"]
        assert 0 <= first < 2**51
        assert [row["event_seq"] - first for row in file] == [0, 1, 2**31]
        assert {row["node_id"] for row in file} == {"unknown"}
    assert found[0][0]["event_seq"] != found[1][0]["event_seq"]


@pytest.mark.parametrize(
    "odd", ["n1:-1", "n1:007", f"n1:{2**52}", "n1:9999999999999999999999", "n2:1", "", "x", "n1:1 "]
)
def test_an_id_that_is_not_node_and_number_is_kept_and_numbers_nothing(tmp_path: Path, odd: str) -> None:
    row = one(tmp_path, id=odd)
    assert row["event_seq"] is None
    assert json.loads(row["attrs_json"]).get("ingero.id", "") == odd


def test_the_given_node_is_for_rows_without_one(tmp_path: Path) -> None:
    path = write(tmp_path / "mixed.db", events=[event(1), event(2, node="")])
    read = open_file(path, Names(node="forced", cluster="prod"))
    assert [(row["node_id"], row["cluster_id"]) for row in rows(read)] == [("n1", "prod"), ("forced", "prod")]
    assert read.warnings == ()


def test_a_chain_keeps_everything_the_agent_said(tmp_path: Path) -> None:
    told = chain(
        "n1:tail-high-cudaFree", node="n1", recommendations='["pin it","wait"]', cuda_op="cudaFree", cuda_p99_us=1052,
        cuda_p50_us=187, tail_ratio=5.6, timeline='[{"layer":"HOST","op":"sched_switch","detail":"d","dur_us":7}]',
    )  # fmt: skip
    path = write(tmp_path / "chains.db", events=[event(1)], causal_chains=[told, chain("drop", node="n1")])
    read = open_file(path)
    assert read.context_rows == {"chains": 2}
    full, drop = context(read, "causal_chain")
    assert (full["node_id"], full["timestamp_ns"], full["source"]) == ("n1", START_NS, "chain")
    assert full["causal_chain_id"] == "n1:tail-high-cudaFree"
    assert full["ingero.chain.severity"] == "HIGH"
    assert full["ingero.chain.summary"] == "slow"
    assert full["ingero.chain.recommendations"] == ["pin it", "wait"]
    assert full["ingero.chain.timeline"][0]["dur_us"] == 7
    assert full["ingero.chain.p99_us"] == 1052
    assert full["ingero.chain.tail_ratio"] == 5.6
    assert drop["causal_chain_id"] == "n1:drop"
    assert not drop.keys() & {"ingero.chain.p99_us", "ingero.chain.tail_ratio", "ingero.chain.timeline"}


def test_frames_become_lines_of_text(tmp_path: Path) -> None:
    frames = json.dumps([
        {"pf": "/a/b.py", "pfn": "step", "pl": 6},
        {"s": "cudaMalloc+0x1", "f": "libcudart.so"},
        {"i": "0x7f", "f": "libx.so"},
        {"s": "main", "f": "main.c", "l": 3},
        "loose",
    ])  # fmt: skip
    stacks = [
        {"hash": 5, "ips": "", "frames": frames},
        {"hash": -1, "ips": '["0x1","0x2"]', "frames": ""},
        {"hash": 6, "ips": "", "frames": '[{"s":"\\ud800"}]'},
        {"hash": 7, "ips": "", "frames": "[" * 5000},
    ]
    path = write(tmp_path / "stacks.db", events=[event(1)], stack_traces=stacks)
    by_id = {row["stack_id"]: row for row in context(open_file(path), "stack")}
    assert by_id["0000000000000005"]["ingero.stack.frames"] == [
        "step (/a/b.py:6)", "cudaMalloc+0x1 (libcudart.so)", "0x7f (libx.so)", "main (main.c:3)", "loose",
    ]  # fmt: skip
    assert by_id["ffffffffffffffff"]["ingero.stack.ips"] == ["0x1", "0x2"]
    assert "ingero.stack.frames" not in by_id["ffffffffffffffff"]
    assert by_id["0000000000000006"]["ingero.stack.frames"] == '[{"s":"\\ud800"}]'
    assert by_id["0000000000000007"]["ingero.stack.frames"] == "[" * 5000


def test_all_other_tables_become_context(tmp_path: Path) -> None:
    path = write(
        tmp_path / "all.db",
        "0.10",
        events=[event(1)],
        sessions=[session(0, 5, node="n1", gpu_model="Tesla T4", cpu_cores=4, rank=2), session(9, 0, stopped_at=0)],
        process_names=[{"pid": 7, "name": "python3", "seen_at": START_NS}, {"pid": 8, "name": "x"}],
        system_snapshots=[{"timestamp": START_NS, "cpu_pct": 1.5, "mem_pct": 2, "mem_avail": 3, "swap_mb": 0,
                           "load_avg": 0.5}],
        event_aggregates=[{"bucket": START_NS, "source": 3, "op": 1, "pid": 7, "count": 9, "stored": 1, "sum_dur": 90,
                           "min_dur": 1, "max_dur": 50}],
        event_aggregates_5s=[{"bucket": START_NS, "source": 1, "op": 77, "count": 2}],
        annotations=[{"timestamp": START_NS, "labels": '{"phase":"eval"}', "pid": 0, "span_start": 5, "peer_uid": 3}],
        cgroup_metadata=[{"cgroup_id": 4, "cgroup_path": "/a", "pod_name": "p"}],
        cgroup_schedstat=[{"cgroup_id": 4, "p99_off_cpu": 1, "total_off_cpu": 2, "event_count": 3,
                           "window_start": START_NS, "window_end": START_NS + 10}],
    )  # fmt: skip
    read = open_file(path)
    assert read.context_rows == {
        "sessions": 2, "process_names": 2, "snapshots": 1, "aggregates": 1, "aggregates_5s": 1, "annotations": 1,
        "cgroups": 1, "cgroup_schedstat": 1,
    }  # fmt: skip
    found = [row | json.loads(row["attrs_json"]) for batch in read.context for row in batch.to_pylist()]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_name.setdefault(row["metric_name"], []).append(row)
    assert {row["node_id"] for row in found} == {"n1"}
    done, running = by_name["session"]
    assert (done["duration_ns"], done["ingero.session.gpu_model"], done["rank"]) == (5 * MS, "Tesla T4", 2)
    assert (running["duration_ns"], "ingero.session.gpu_model" in running) == (None, False)
    assert [(row["pid"], row["process"], row["timestamp_ns"]) for row in by_name["process_name"]] == [
        (7, "python3", START_NS), (8, "x", None),
    ]  # fmt: skip
    assert by_name["system_snapshot"][0]["ingero.snapshot.mem_pct"] == 2.0
    aggregate, short = by_name["op_aggregate"][0], by_name["op_aggregate_5s"][0]
    assert (aggregate["source"], aggregate["ingero.aggregate.op"]) == ("host", "sched_switch")
    assert (aggregate["value_int"], aggregate["value_double"], aggregate["duration_ns"]) == (9, 9.0, 60 * 10**9)
    assert (short["ingero.aggregate.op"], short["duration_ns"]) == ("op.cuda.77", 5 * 10**9)
    note = by_name["annotation"][0]
    assert (note["ingero.annotation.labels"], note["pid"]) == ({"phase": "eval"}, None)
    assert by_name["cgroup"][0]["ingero.cgroup.path"] == "/a"
    assert by_name["cgroup_schedstat"][0]["duration_ns"] == 10
    assert any("the agent counted 9 events and stored 1" in warning for warning in read.warnings)


def test_the_name_of_a_process_is_that_of_its_run(tmp_path: Path) -> None:
    path = write(
        tmp_path / "runs.db",
        "0.10",
        events=[event(n, pid=pid, comm=comm) for n, pid, comm in ((1, 5, ""), (2, 6, ""), (3, 6, "own"), (50, 5, ""))],
        sessions=[session(0, 10, node="n1"), session(40, 60, node="n1")],
        process_names=[{"pid": 5, "name": "later", "seen_at": START_NS + 55 * MS},
                       {"pid": 6, "name": "early", "seen_at": START_NS + 9 * MS}],
    )  # fmt: skip
    assert [row["process"] for row in rows(open_file(path))] == [None, "early", "own", "later"]


def test_rows_that_cannot_be_used_are_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"timestamp": "yesterday"}, {"timestamp": 5}, {"timestamp": 2**63 - 1}, {"duration": -1}, {"duration": 2**62},
        {"source": 2}, {"source": 77}, {"op": 256}, {"pid": -1}, {"tid": b"x"}, {"node": b"n1"}, {"node": "x" * 256},
    ]  # fmt: skip
    soft: list[dict[str, Any]] = [{"arg0": "many"}, {"rank": -1}, {"stack_hash": 1.5}, {"stack_ips": "x" * 5000}]
    events = [event(n, **values) for n, values in enumerate([*bad, *soft, {}])]
    read = open_file(write(tmp_path / "bad.db", events=events))
    assert read.rows == 5
    assert [row["event_seq"] for row in rows(read)] == [12, 13, 14, 15, 16]
    assert read.warnings == (
        "12 rows of events were skipped: no usable duration (2), node (2), op (1), pid (1), source (2), tid (1), "
        "timestamp (3)",
        "4 values in rows of events could not be kept: of the wrong type, too large or too long",
    )


def test_bad_rows_of_other_tables_are_counted_too(tmp_path: Path) -> None:
    path = write(
        tmp_path / "bad.db",
        events=[event(1)],
        causal_chains=[chain("a", detected_at=0), chain("b", summary="x" * 70_000), chain("c", tail_ratio=9e999)],
        process_names=[{"pid": -7, "name": "x"}],
    )
    read = open_file(path)
    assert read.context_rows == {"chains": 2}
    assert len(context(read, "causal_chain")) == 2
    assert read.warnings == (
        "1 rows of causal_chains were skipped: no usable detected_at (1)",
        "1 rows of process_names were skipped: no usable pid (1)",
        "2 values in rows of causal_chains could not be kept: of the wrong type, too large or too long",
    )


def test_text_that_is_no_text_does_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path / "text.db", "0.10", events=[event(1, comm="a\0b"), event(2)], causal_chains=[chain("c:\0")])
    change(path, "UPDATE events SET comm = CAST(x'ff41fe' AS TEXT) WHERE id = 'n1:2'")
    read = open_file(path)
    assert [row["process"] for row in rows(read)] == ["a\0b", "\ufffdA\ufffd"]
    assert context(read, "causal_chain")[0]["causal_chain_id"] == "c:\0"


def test_the_digest_is_of_the_content_and_of_nothing_else(tmp_path: Path) -> None:
    events = [event(1), event(2)]
    path = write(tmp_path / "a.db", events=events)
    digest = open_file(path).digest
    same = write(tmp_path / "b.db", events=events)
    change(same, "PRAGMA user_version = 10", "CREATE TABLE extra (x)", "ANALYZE")
    assert open_file(same, Names(node="other", cluster="c")).digest == digest
    assert open_file(write(tmp_path / "c.db", events=[event(1), event(3)])).digest != digest


def test_a_large_file_comes_in_portions_that_are_always_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ingero_events, ingero_survey):
        monkeypatch.setattr(module, "CHUNK_ROWS", 10)
    monkeypatch.setattr(ingero_agent.ingero_context, "CHUNK_ROWS", 2)
    path = write(
        tmp_path / "a.db",
        events=[event(n) for n in range(35)],
        causal_chains=[chain(f"n1:{n}", node="n1") for n in range(5)],
    )
    first, second = (list(open_file(path).batches) for _ in range(2))
    assert [batch.num_rows for batch in first] == [10, 10, 10, 5]
    assert pa.Table.from_batches(first) == pa.Table.from_batches(second)
    assert [batch.num_rows for batch in open_file(path).context] == [2, 2, 1]


def test_ranks_and_world_size_are_those_of_the_events(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", events=[event(n, rank=n % 3, world_size=8) for n in range(9)])
    read = open_file(path)
    assert (read.ranks, read.world_size, read.steps) == (3, 8, 0)
    mixed = open_file(write(tmp_path / "b.db", events=[event(n, world_size=n) for n in range(3)]))
    assert (mixed.ranks, mixed.world_size) == (0, None)


def test_a_database_without_events_is_a_database(tmp_path: Path) -> None:
    read = open_file(write(tmp_path / "a.db", causal_chains=[chain("a")]))
    assert (read.rows, rows(read), read.context_rows) == (0, [], {"chains": 1})


def test_a_migrated_database_keeps_its_integer_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.db", "0.8", events=[event(1, None), event(2, None)])
    change(
        path,
        "ALTER TABLE events ADD COLUMN node TEXT NOT NULL DEFAULT ''",
        "UPDATE events SET node = 'n9' WHERE id = 2",
        "UPDATE schema_info SET value = '0.9'",
    )
    found = rows(open_file(path, Names(node="old")))
    assert [(row["node_id"], json.loads(row["attrs_json"])["ingero.id"]) for row in found] == [("old", 1), ("n9", 2)]
