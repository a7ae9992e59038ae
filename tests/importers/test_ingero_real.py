"""Databases that real agents wrote, against what is known of them and against SQLite's own answers."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ingero_mcp.cli.import_file import put
from ingero_mcp.importers.registry import open_file, sort_out
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from tests.conftest import DATA
from tests.processes import run_ingero

AGENTS = DATA / "ingero"
CLUSTER = AGENTS / "sample-cluster.db"
DATALOADER = AGENTS / "pytorch-dataloader-starvation.db"
EMPTY_CACHE = AGENTS / "pytorch-173382-empty-cache.db"
FILES = sorted(AGENTS.glob("*.db"))
pytestmark = pytest.mark.skipif(not FILES, reason="the agents' databases are not beside this checkout")


@pytest.fixture
def memory() -> Iterator[Store]:
    with open_store(None) as store:
        yield store


def ask(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.query(check(sql), limit=10_000).rows


def theirs(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def test_the_cluster_is_counted_by_node_and_source_and_its_bytes_stay() -> None:
    before = hashlib.sha256(CLUSTER.read_bytes()).hexdigest()
    listing = sorted(AGENTS.iterdir())
    sql = "SELECT node, source, count(*) AS n FROM events GROUP BY node, source ORDER BY ALL"
    done = run_ingero("query", "-d", str(CLUSTER), sql)
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()[2:]] == [
        ["gpu-node-01", "host", "99"], ["gpu-node-01", "io", "101"],
        ["gpu-node-02", "driver", "40"], ["gpu-node-02", "host", "62"], ["gpu-node-02", "io", "98"],
        ["gpu-node-03", "driver", "36"], ["gpu-node-03", "host", "58"], ["gpu-node-03", "io", "106"],
    ]  # fmt: skip
    assert hashlib.sha256(CLUSTER.read_bytes()).hexdigest() == before
    assert sorted(AGENTS.iterdir()) == listing


def test_all_six_chains_are_there_with_severity_node_and_time(memory: Store) -> None:
    put(open_file(CLUSTER), memory)
    found = ask(memory, "SELECT node_id, severity, op, p99_us, tail_ratio FROM chains ORDER BY detected_ns, op")
    assert found == [
        ("gpu-node-01", "MEDIUM", "cuLaunchKernel", 734, 45.8),
        ("gpu-node-01", "MEDIUM", "cuMemAlloc", 1052, 5.4),
        ("gpu-node-01", "HIGH", "cuLaunchKernel", None, None),
        ("gpu-node-01", "HIGH", "cuMemAlloc", 1052, 5.6),
        ("gpu-node-02", "MEDIUM", "cuMemAlloc", 51501, 410.6),
        ("gpu-node-03", "MEDIUM", "cuMemAlloc", 25976, 137.2),
    ]
    ours = ask(memory, "SELECT chain_id, detected_ns, summary, recommendations FROM chains ORDER BY chain_id")
    sql = "SELECT id, detected_at, summary, recommendations FROM causal_chains ORDER BY id"
    assert ours == theirs(CLUSTER, sql)


@pytest.mark.parametrize(
    ("path", "context"),
    [
        (CLUSTER, {"chains": 6, "stacks": 9, "sessions": 3, "process_names": 15, "snapshots": 5, "cgroups": 3}),
        (DATALOADER, {"chains": 316, "stacks": 21, "sessions": 1, "process_names": 13, "snapshots": 40,
                      "aggregates": 51, "cgroups": 7, "cgroup_schedstat": 217}),
        (EMPTY_CACHE, {"chains": 4, "stacks": 780, "sessions": 1, "process_names": 10, "snapshots": 20,
                       "aggregates": 43, "cgroups": 5, "cgroup_schedstat": 221}),
        (AGENTS / "sample-gpu-node-01.db", {"chains": 4, "stacks": 8, "sessions": 1, "process_names": 10,
                                            "snapshots": 1, "cgroups": 1, "cgroup_schedstat": 8}),
    ],
    ids=lambda given: given.stem if isinstance(given, Path) else "",
)  # fmt: skip
def test_nothing_that_a_file_holds_is_left_out(memory: Store, path: Path, context: dict[str, int]) -> None:
    read = open_file(path)
    assert read.context_rows == context
    put(read, memory)
    assert {view: ask(memory, f"SELECT count(*) FROM {view}")[0][0] for view in context} == context


DATALOADER_OPS = {
    "cudaMalloc": 7, "cudaLaunchKernel": 16, "cudaStreamSync": 21, "cudaDeviceSync": 3, "cudaMemcpyAsync": 14,
    "sched_switch": 3676, "process_exit": 5, "process_fork": 11, "cuLaunchKernel": 41, "cuCtxSynchronize": 3,
    "cuMemAlloc": 10,
}  # fmt: skip
EMPTY_CACHE_OPS = {
    "cudaMalloc": 45, "cudaFree": 40, "cudaLaunchKernel": 915, "cudaStreamSync": 405, "cudaMemcpyAsync": 310,
    "sched_switch": 116, "sched_wakeup": 47, "process_exit": 11, "process_fork": 6, "cuLaunchKernel": 1520,
    "cuMemAlloc": 49, "net_send": 1, "net_recv": 21,
}  # fmt: skip


@pytest.mark.parametrize(("path", "ops"), [(DATALOADER, DATALOADER_OPS), (EMPTY_CACHE, EMPTY_CACHE_OPS)])
def test_the_events_of_an_incident_are_counted_by_operation(memory: Store, path: Path, ops: dict[str, int]) -> None:
    put(open_file(path), memory)
    assert dict(ask(memory, "SELECT metric_name, count(*) FROM events GROUP BY ALL")) == ops


def test_the_aggregates_tell_what_really_happened(memory: Store) -> None:
    read = open_file(DATALOADER)
    assert any("the agent counted 1623496 events and stored 3807" in warning for warning in read.warnings)
    put(read, memory)
    sql = "SELECT op, sum(count), sum(sum_duration_ns), sum(sum_arg0) FROM aggregates GROUP BY op"
    counted = {op: tuple(rest) for op, *rest in ask(memory, sql)}
    assert counted["sched_switch"] == (191_835, 50_765_614_482, 0)
    assert counted["sched_wakeup"][0] == 886
    assert counted["mm_page_alloc"] == (1_430_581, 0, 5_861_011_456)
    assert counted["cudaMemcpyAsync"][::2] == (21, 6_020_708_392)
    assert ask(memory, "SELECT name FROM process_names WHERE pid = 2255") == [("pt_data_worker",)]


def test_the_other_incident_has_its_numbers_too(memory: Store) -> None:
    put(open_file(EMPTY_CACHE), memory)
    slowest = "SELECT max(duration_ns), count(bytes) FROM events WHERE metric_name = 'cudaFree'"
    assert ask(memory, slowest) == [(1_904_932, 0)]
    assert ask(memory, "SELECT process, count(*) FROM events WHERE pid = 30581 GROUP BY ALL") == [("python3", 3387)]
    counted = dict(ask(memory, "SELECT op, sum(count) FROM aggregates GROUP BY op"))
    assert (counted["cudaLaunchKernel"], counted["cuLaunchKernel"], counted["sched_switch"]) == (31_074, 31_659, 266)
    [(frames,)] = ask(memory, "SELECT count(*) FROM events e JOIN stacks s USING (stack_id) WHERE len(frames) > 2")
    assert frames == 3284


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_agents_own_columns_answer_as_sqlite_does(memory: Store, path: Path) -> None:
    put(open_file(path), memory)
    names = "timestamp, pid, tid, source, op, duration, gpu_id, arg0, arg1, ret_code, stack_hash, cgroup_id"
    in_file = theirs(path, f"SELECT CAST(id AS TEXT), {names} FROM events")
    assert Counter(ask(memory, f"SELECT id, {names} FROM ingero_events")) == Counter(in_file)


def test_every_event_begins_before_it_ends_within_its_run(memory: Store) -> None:
    put(open_file(EMPTY_CACHE), memory)
    late = "SELECT count(*) FROM events, sessions WHERE timestamp_ns + duration_ns > stopped_ns OR timestamp_ns < 0"
    assert ask(memory, late) == [(0,)]


def test_a_merge_and_its_parts_are_not_counted_twice_and_complete_each_other(memory: Store) -> None:
    stored = {path.name: put(open_file(path), memory) for path in sort_out(AGENTS).files}
    assert stored["sample-cluster.db"] == 600
    assert [stored[f"sample-gpu-node-0{number}.db"] for number in (1, 2, 3)] == [0, 0, 0]
    # The merge knows one process 96, and it was not the one of node 02.
    names = ask(memory, "SELECT node_id, name FROM process_names WHERE pid = 96 ORDER BY ALL")
    assert names == [("gpu-node-01", "jbd2/nvme1n1p1-8"), ("gpu-node-02", "jbd2/nvme0n1p1-8")]
    assert ask(memory, "SELECT count(*) FROM chains WHERE node_id LIKE 'gpu-node-%'") == [(6,)]
    assert ask(memory, "SELECT count(*) FROM snapshots WHERE node_id LIKE 'gpu-node-%'") == [(5,)]
    assert ask(memory, "SELECT count(*) FROM cgroup_schedstat WHERE node_id LIKE 'gpu-node-%'") == [(15,)]


def test_a_merge_does_not_give_a_process_the_name_of_another_node(memory: Store) -> None:
    put(open_file(CLUSTER), memory)
    found = ask(memory, "SELECT node_id, process, count(*) FROM events WHERE pid = 96 GROUP BY ALL ORDER BY ALL")
    assert [(node, process) for node, process, _ in found] == [
        ("gpu-node-01", "jbd2/nvme1n1p1-8"), ("gpu-node-02", None)
    ]  # fmt: skip


def test_three_nodes_are_merged_without_a_loss_or_a_false_alarm(tmp_path: Path) -> None:
    nodes = [AGENTS / f"sample-gpu-node-0{number}.db" for number in (1, 2, 3)]
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in nodes}
    out = tmp_path / "cluster.duckdb"
    done = run_ingero("merge", *map(str, nodes), "-o", str(out), "--clock-skew-threshold", "1ms")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{out}: 600 events of 3 files (chains 6, stacks 9, sessions 3, process_names 16, snapshots 5, cgroups 3, "
        "cgroup_schedstat 15)\n"
    )
    assert {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in nodes} == before
    with open_store(out, read_only=True) as store:
        names = "timestamp, pid, tid, source, op, duration, gpu_id, arg0, arg1, ret_code, stack_hash, cgroup_id, node"
        in_files = [row for path in nodes for row in theirs(path, f"SELECT id, {names} FROM events")]
        assert Counter(ask(store, f"SELECT id, {names} FROM ingero_events")) == Counter(in_files)
        in_files = [row for path in nodes for row in theirs(path, "SELECT id, node, summary FROM causal_chains")]
        assert Counter(ask(store, "SELECT chain_id, node_id, summary FROM chains")) == Counter(in_files)
        hashes = {hash_ for path in nodes for (hash_,) in theirs(path, "SELECT hash FROM stack_traces")}
        assert {stack for (stack,) in ask(store, "SELECT stack_id FROM stacks")} == {
            format(hash_ & (2**64 - 1), "016x") for hash_ in hashes
        }


def test_a_merge_of_everything_holds_what_the_merge_of_an_agent_lost(tmp_path: Path) -> None:
    done = run_ingero("merge", *map(str, FILES), "-o", str(tmp_path / "all.duckdb"), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["holds"]["events"] == 600 + 3486 + 3807
    assert (said["more_than_once"], said["renumbered"]) == (600, 0)
    assert said["holds"]["chains"] == 6 + 4 + 316
    with open_store(tmp_path / "all.duckdb", read_only=True) as store:
        found = ask(store, "SELECT node_id, process FROM events WHERE pid = 96 GROUP BY ALL ORDER BY ALL")
        assert found == [("gpu-node-01", "jbd2/nvme1n1p1-8"), ("gpu-node-02", "jbd2/nvme0n1p1-8")]
