"""Incidents that real agents recorded: what their stored chains say, and what the events and counts beside them do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingero_mcp.cli.import_file import put
from ingero_mcp.importers.registry import open_file
from ingero_mcp.store import open_store
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.found import ShownChain, chains
from tests.importers.test_ingero_real import AGENTS, CLUSTER, DATALOADER, EMPTY_CACHE
from tests.processes import run_ingero

pytestmark = pytest.mark.skipif(not AGENTS.exists(), reason="the agents' databases are not beside this checkout")


def shown(path: Path) -> tuple[ShownChain, ...]:
    with open_store(None) as store:
        put(open_file(path), store)
        return chains(Call(store, None), None).shown


def test_the_data_workers_are_named_with_what_the_agent_counted_and_not_with_what_it_kept() -> None:
    (drop,) = [one for one in shown(DATALOADER) if one.origin == "computed"]
    assert (drop.kind, drop.severity) == ("throughput_drop", "HIGH")
    assert "python3 (pid 2233) dropped 89%" in drop.summary
    assert "pt_data_worker (pid 2255, 2256, 2257, started by the process in trouble)" in drop.root_cause
    statements = " ".join(fact["statement"] for fact in drop.evidence)
    assert "191835 sched_switch and 50.8 s off the CPU in sum, sleep included" in statements
    assert "load 0.78 per core of 4" in statements
    assert any("num_workers" in text and "pt_data_worker" in text for text in drop.recommendations)
    assert (drop.start, drop.end) == ("2026-03-20T14:07:03.453641882Z", "2026-03-20T14:07:30.14906874Z")


def test_hundreds_of_stored_chains_are_four_and_the_events_do_not_confirm_them() -> None:
    stored = [one for one in shown(DATALOADER) if one.origin == "stored"]
    assert {one.op for one in stored} == {"cudaLaunchKernel", "cuMemAlloc", "cuLaunchKernel", "cudaStreamSync"}
    assert [(one.severity, one.count) for one in stored] == [("HIGH", 79)] * 4
    assert sum(one.count for one in stored) == 316
    by_op = {one.op: one.checked or "" for one in stored}
    assert "every slow call is one of a cold start" in by_op["cudaLaunchKernel"]


def test_the_allocator_is_named_with_its_counts_and_the_copies_beside_what_the_agent_said() -> None:
    found = {one.op: one for one in shown(EMPTY_CACHE)}
    free = found["cudaFree"]
    assert (free.origin, free.severity, free.p99_us, free.tail_ratio) == ("computed", "MEDIUM", 1905.0, 4.6)
    assert "40 cudaFree in 20.2 ms" in free.root_cause
    assert "54 cudaFree, 51 cudaMalloc in the whole recording" in free.root_cause
    assert free.stored_as == "MEDIUM cudaFree p99=1.904932ms (4.6x p50) — 54 sched_switch events"
    copy = found["cudaMemcpyAsync"]
    assert copy.origin == "computed"
    assert copy.stored_as == "MEDIUM cudaMemcpyAsync p99=887.242µs (98.6x p50) — 123 sched_switch events"
    assert "33 context switches of its threads" in copy.root_cause
    assert "none of the 69.1 ms lost was off the CPU" in copy.root_cause
    assert "the slow calls are also the big ones: 8.72 MB each" in copy.root_cause
    assert copy.p99_us == pytest.approx(1000, rel=0.05)
    assert copy.usual_us == pytest.approx(9.5, abs=0.1)


def test_the_six_stored_chains_of_a_cluster_come_by_severity_and_healthy_nodes_get_none_of_ours() -> None:
    found = shown(CLUSTER)
    assert [(one.severity, one.node, one.op, one.origin) for one in found] == [
        ("HIGH", "gpu-node-01", "cuLaunchKernel", "stored"),
        ("HIGH", "gpu-node-01", "cuMemAlloc", "stored"),
        ("MEDIUM", "gpu-node-01", "cuLaunchKernel", "stored"),
        ("MEDIUM", "gpu-node-01", "cuMemAlloc", "stored"),
        ("MEDIUM", "gpu-node-02", "cuMemAlloc", "stored"),
        ("MEDIUM", "gpu-node-03", "cuMemAlloc", "stored"),
    ]
    assert "not confirmed: this is no long tail" in (found[4].checked or "")
    for number in (2, 3):
        (one,) = shown(AGENTS / f"sample-gpu-node-0{number}.db")
        assert one.origin == "stored"


def test_explain_tells_them_and_its_json_has_them_beside_the_stall() -> None:
    done = run_ingero("explain", "-d", str(CLUSTER))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("INCIDENT REPORT: 6 causal chains (2 HIGH, 4 MEDIUM)\n")
    said = json.loads(run_ingero("explain", "-d", str(CLUSTER), "--json").stdout)
    assert said["verdict"] == "undecidable"
    assert len(said["chains"]) == 6
