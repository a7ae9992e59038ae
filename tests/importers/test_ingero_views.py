"""What was imported, and what came over the wire, as SQL sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingero_mcp import views
from ingero_mcp.cli.import_file import put
from ingero_mcp.events import Point, Resource, Span
from ingero_mcp.importers.registry import open_file
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.encode import encode_points, encode_spans
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.otlp.signal import Signal
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from tests.importers.ingero_lookalike import MS, START_NS, chain, event, session, write


@pytest.fixture
def memory() -> Iterator[Store]:
    with open_store(None) as store:
        yield store


def ask(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.query(check(sql), limit=10_000).rows


def load(store: Store, path: Path, version: str = "0.9", **tables: Any) -> int:
    return put(open_file(write(path, version, **tables)), store)


def receive(store: Store, signal: Signal, body: bytes) -> None:
    store.append(Decoder().decode(signal, body, Arrival(START_NS)).batch).result(timeout=10)


@pytest.mark.parametrize("view", views.VIEWS, ids=lambda view: view.name)
def test_a_view_has_the_columns_that_it_says(memory: Store, view: views.View) -> None:
    assert memory.query(check(f"SELECT * FROM {view.name}"), limit=1).columns == tuple(name for name, _ in view.columns)


def test_context_is_no_event(memory: Store, tmp_path: Path) -> None:
    load(
        memory, tmp_path / "a.db", events=[event(1)], causal_chains=[chain("n1:a", node="n1")], sessions=[session(0, 1)]
    )
    assert ask(memory, "SELECT node, source, count(*) FROM events GROUP BY ALL") == [("n1", "cuda", 1)]
    assert ask(memory, "SELECT node_id, events FROM nodes") == [("n1", 1)]


def test_chains_of_files_and_of_the_wire_stand_side_by_side(memory: Store, tmp_path: Path) -> None:
    told = chain("n1:tail", node="n1", cuda_op="cudaFree", cuda_p99_us=9, tail_ratio=4.5, recommendations='["wait"]')
    load(memory, tmp_path / "a.db", events=[event(1)], causal_chains=[told])
    sent = {
        "causal_chain_id": "n2:drop", "ingero.chain.severity": "MEDIUM", "ingero.chain.root_cause": "io",
        "ingero.chain.recommendations": ["pin", "wait"], "ingero.chain.p99_us": 12, "ingero.rank": 5,
    }  # fmt: skip
    points = [Point(views.CHAIN.metric_name, START_NS + 5, sent, body="throughput dropped")]
    body = encode_points(Resource({"ingero.node.id": "n2"}), points)
    receive(memory, "logs", body)
    found = ask(
        memory,
        "SELECT node_id, chain_id, detected_ns, severity, summary, root_cause, recommendations, op, p99_us, "
        "tail_ratio, rank FROM chains ORDER BY node_id",
    )
    assert found == [
        ("n1", "n1:tail", START_NS, "HIGH", "slow", "why", '["wait"]', "cudaFree", 9, 4.5, None),
        ("n2", "n2:drop", START_NS + 5, "MEDIUM", "throughput dropped", "io", '["pin","wait"]', None, 12, None, 5),
    ]


def test_a_stack_is_one_row_however_often_it_was_sent(memory: Store, tmp_path: Path) -> None:
    load(memory, tmp_path / "a.db", events=[event(1, stack_hash=255)], stack_traces=[{"hash": 255, "ips": '["0x1"]'}])
    sent = {"ingero.stack_id": "00000000000000ff", "ingero.stack.frames": ["f (a.c)"]}
    body = encode_points(Resource({"ingero.node.id": "n2"}), [Point("stack", START_NS + n, sent) for n in range(3)])
    receive(memory, "logs", body)
    assert ask(memory, "SELECT stack_id, frames, ips FROM stacks") == [("00000000000000ff", '["f (a.c)"]', '["0x1"]')]
    joined = "SELECT e.metric_name, s.frames FROM events e JOIN stacks s USING (stack_id) WHERE e.source = 'cuda'"
    assert ask(memory, joined) == [("cudaMalloc", '["f (a.c)"]')]


def test_annotations_of_files_and_of_the_wire_have_labels(memory: Store, tmp_path: Path) -> None:
    note = {"timestamp": START_NS, "labels": '{"phase":"eval"}', "pid": 7, "peer_uid": 1000}
    load(memory, tmp_path / "a.db", "0.10", events=[event(1)], annotations=[note])
    body = encode_points(Resource({"ingero.node.id": "n2"}), [Point("annotation", START_NS + 1, {"phase": "train"})])
    receive(memory, "logs", body)
    found = ask(memory, "SELECT node_id, labels ->> 'phase', pid, peer_uid FROM annotations ORDER BY timestamp_ns")
    assert found == [("n1", "eval", 7, 1000), ("n2", "train", None, None)]


def test_the_other_views_show_what_a_file_holds(memory: Store, tmp_path: Path) -> None:
    load(
        memory,
        tmp_path / "a.db",
        "0.10",
        events=[event(1)],
        sessions=[session(0, 5, node="n1", gpu_model="Tesla T4", cpu_cores=4, mem_total=15)],
        process_names=[{"pid": 7, "name": "python3", "seen_at": START_NS}],
        system_snapshots=[{"timestamp": START_NS, "cpu_pct": 1.5, "mem_pct": 2, "mem_avail": 3, "swap_mb": 0,
                           "load_avg": 0.5}],
        event_aggregates=[{"bucket": START_NS + n * MS, "source": 3, "op": 1, "pid": 7, "count": 9, "stored": 1,
                           "sum_dur": 90, "min_dur": 1, "max_dur": 50, "sum_arg0": 4} for n in range(2)],
        event_aggregates_5s=[{"bucket": START_NS, "source": 1, "op": 1, "count": 2}],
        cgroup_metadata=[{"cgroup_id": 4, "cgroup_path": "/a", "pod_name": "p", "namespace": "ns"}],
        cgroup_schedstat=[{"cgroup_id": 4, "p99_off_cpu": 1, "total_off_cpu": 2, "event_count": 3,
                           "window_start": START_NS, "window_end": START_NS + 10}],
    )  # fmt: skip
    expected = {
        "SELECT node_id, started_ns, stopped_ns, gpu_model, cpu_cores, mem_total_mb, flags FROM sessions":
            ("n1", START_NS, START_NS + 5 * MS, "Tesla T4", 4, 15, None),
        "SELECT node_id, pid, name, seen_ns FROM process_names": ("n1", 7, "python3", START_NS),
        "SELECT timestamp_ns, cpu_pct, mem_pct, mem_available_mb, swap_mb, load_avg FROM snapshots":
            (START_NS, 1.5, 2.0, 3, 0, 0.5),
        "SELECT source, op, pid, sum(count), sum(stored), sum(sum_duration_ns), min(min_duration_ns), "
        "max(max_duration_ns), sum(sum_arg0) FROM aggregates GROUP BY ALL":
            ("host", "sched_switch", 7, 18, 2, 180, 1, 50, 8),
        "SELECT op, count FROM aggregates_5s": ("cudaMalloc", 2),
        "SELECT cgroup_id, container_id, path, pod_name, namespace FROM cgroups": (4, None, "/a", "p", "ns"),
        "SELECT cgroup_id, window_end_ns, p99_off_cpu_ns, total_off_cpu_ns, event_count FROM cgroup_schedstat":
            (4, START_NS + 10, 1, 2, 3),
    }  # fmt: skip
    for sql, row in expected.items():
        assert ask(memory, sql) == [row], sql


def test_sql_that_was_written_for_the_agents_table_still_runs(memory: Store, tmp_path: Path) -> None:
    events = [
        event(1, arg0=4096, arg1=2**40, stack_hash=-7, rank=1, world_size=8, comm="python3"),
        event(2, source=3, op=1, duration=500, arg1=-1, cgroup_id=9),
        event(3, source=4, op=44, ret_code=2, gpu_id=1, stack_hash=2**63 - 1),
        event(4, source=8, op=4),
    ]
    load(memory, tmp_path / "a.db", "0.10", events=events)
    names = ("id", "timestamp", "pid", "tid", "source", "op", "duration", "gpu_id", "arg0", "arg1", "ret_code",
             "stack_hash", "node", "rank", "local_rank", "world_size", "comm", "cgroup_id")  # fmt: skip
    usual: dict[str, Any] = dict.fromkeys(("rank", "local_rank", "world_size")) | {"comm": ""}
    expected = [tuple((usual | row).get(name, 0) for name in names) for row in events]
    assert ask(memory, f"SELECT {', '.join(names)} FROM ingero_events ORDER BY timestamp") == expected
    example = (
        "SELECT e.id, s.name AS source, o.name AS op, e.duration/1000 AS dur_us, e.pid FROM ingero_events e "
        "JOIN sources s ON e.source = s.id JOIN ops o ON e.source = o.source_id AND e.op = o.op_id "
        "ORDER BY e.timestamp DESC LIMIT 20"
    )
    assert ask(memory, example) == [
        ("n1:4", "CUDA_GRAPH", "graphLaunch", 1.0, 7), ("n1:2", "HOST", "sched_switch", 0.5, 7),
        ("n1:1", "CUDA", "cudaMalloc", 1.0, 7),
    ]  # fmt: skip
    unknown = ask(memory, "SELECT source_name, op, op_name FROM ingero_events WHERE op = 44")
    assert unknown == [("driver", 44, "op.driver.44")]


def test_the_agents_columns_show_calls_from_the_wire_too_and_nothing_else(memory: Store) -> None:
    spans = [Span("cudaStreamSynchronize", START_NS, START_NS + 9), Span("op.mine.3", START_NS, START_NS + 9)]
    body = encode_spans(Resource({"ingero.node.id": "n2"}), spans)
    receive(memory, "traces", body)
    assert ask(memory, "SELECT node, source, op, op_name, duration FROM ingero_events") == [
        ("n2", 1, 5, "cudaStreamSync", 9)
    ]


def test_codes_and_names_are_a_bijection() -> None:
    names = [name for ops in views.AGENT_OPS.values() for name in ops.values()]
    assert len(names) == len(set(names))
    assert views.AGENT_OPS.keys() == views.AGENT_SOURCES.keys()
