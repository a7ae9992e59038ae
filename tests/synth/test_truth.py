"""What the truth says was planted is there, and what is planted changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from ingero_mcp import semconv
from ingero_mcp.synth.scenario import FAMILIES, generate
from ingero_mcp.synth.scenario.generate import run_incident
from ingero_mcp.synth.scenario.run import Run
from ingero_mcp.synth.scenario.timeline import happens

from .events import columns, rows

ON_HOSTS = ("F1", "F2", "F3", "F4", "F8", "F9", "F14", "F15")
SEEDS = range(6)


def own_work(run: Run) -> np.ndarray:
    """What every rank's thread did by itself before the collectives of each step, (steps, ranks)."""
    total = np.zeros((run.job.steps, run.job.layout.world), np.int64)
    for op in run.ops:
        if op.windows is not None:
            total[:, op.ranks] += sum(op.windows[:3])
    return total


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", ON_HOSTS)
def test_the_culprits_do_more_in_the_affected_steps_and_nobody_else_does(family: str, seed: int) -> None:
    incident = run_incident(family, seed, 10.0)
    draft, more = incident.draft, own_work(incident.run) - own_work(incident.usual)
    # Time spread over launches is rounded down in each of them.
    more[np.abs(more) < 100] = 0
    assert set(np.flatnonzero(more.any(axis=0)).tolist()) == set(draft.culprits)
    assert set(np.flatnonzero(more.any(axis=1)).tolist()) == set(draft.steps.tolist())
    assert np.median(more[draft.steps].max(axis=1)) == pytest.approx(10 * incident.durations.spread_ns, rel=0.5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", ["F1", "F2", "F4", "F5", "F9", "F14"])
def test_it_costs_about_what_is_planted_per_step_and_nothing_without_it(family: str, seed: int) -> None:
    incident = run_incident(family, seed, 10.0)
    lost = (incident.run.step_ns - incident.usual.step_ns).astype(float)
    unit = 10.0 * incident.durations.spread_ns
    affected = incident.draft.steps
    assert 0.25 * unit <= lost[affected].mean() <= 1.6 * unit
    untouched = np.setdiff1d(np.arange(len(lost)), affected)
    assert np.abs(lost[untouched]).sum() == 0


@pytest.mark.parametrize("family", ["F1", "F4", "F9"])
def test_a_period_in_the_truth_is_one_of_its_steps(family: str) -> None:
    truth = generate(family, 2).truth
    assert set(np.diff(truth.affected_steps)) == {truth.period_steps}


def test_a_period_in_seconds_is_one_of_wall_time() -> None:
    incident = run_incident("F15", 3, 10.0)
    times = incident.run.base_ns[incident.draft.steps] / 1e9
    apart = np.diff(times)
    assert incident.draft.period_seconds is not None
    step_s = np.median(incident.run.step_ns) / 1e9
    assert np.abs(apart.mean() - incident.draft.period_seconds) <= 0.35 * incident.draft.period_seconds + step_s


@pytest.mark.parametrize("family", ["F6", "F10", "F11", "F16"])
def test_nothing_happens_after_a_hang_but_notes_of_open_calls(family: str) -> None:
    for seed in SEEDS:
        case = generate(family, seed)
        found = rows(case)
        hang_ns = case.truth.hang_ns
        assert hang_ns is not None
        job = case.recordings[0].sender.layout.job_id
        late = {
            row["metric_name"]
            for row in found
            if row["job_id"] == job and row["timestamp_ns"] > hang_ns + 20 * case.truth.step_ns + 5_000_000_000
        }
        assert late <= {semconv.CALL_OPEN, "process.exec", "block.io", "tcp.retransmit"}
        assert any(row["metric_name"] == semconv.CALL_OPEN for row in found)


def test_a_silent_host_is_missing_in_a_collective_that_its_peers_entered() -> None:
    for seed in SEEDS:
        incident = run_incident("F16", seed, 5.0)
        (culprit,) = incident.draft.culprits
        last = incident.run.last_step
        entered = {
            rank
            for op in incident.run.ops
            if op.kind == "collective"
            for rank in op.ranks[happens(op.enter[last])].tolist()
        }
        missing = [
            op
            for op in incident.run.ops
            if op.kind == "collective"
            and culprit in op.ranks
            and not happens(op.enter[last][op.ranks == culprit]).any()
        ]
        assert missing
        assert entered - {culprit}


def test_a_gpu_that_stops_leaves_its_host_enqueuing() -> None:
    for seed in SEEDS:
        incident = run_incident("F6", seed, 5.0)
        (culprit,) = incident.draft.culprits
        last = incident.run.last_step
        own = [op for op in incident.run.ops if op.kind == "collective" and culprit in op.ranks]
        enqueued = [happens(op.enter[last][op.ranks == culprit]).all() for op in own]
        completed = [happens(op.done[last][op.ranks == culprit]).all() for op in own]
        assert sum(enqueued) > sum(completed)


def test_a_mismatch_is_one_rank_that_calls_something_else_at_one_position() -> None:
    for seed in SEEDS:
        case = generate("F10", seed, view="kernel")
        (culprit,) = case.truth.culprits
        found = columns(case, "metric_name", "comm_id", "coll_seq", "rank", "bytes")
        said: dict[tuple[str, int], dict[int, tuple[str, int]]] = {}
        for name, comm, seq, rank, size in zip(*found.values(), strict=True):
            if name not in ("ncclSend", "ncclRecv"):
                said.setdefault((comm, seq), {})[rank] = (name, size)
        different = [calls for calls in said.values() if len(set(calls.values())) > 1]
        (calls,) = different
        alone = [rank for rank, call in calls.items() if list(calls.values()).count(call) == 1]
        assert alone == [culprit]


def test_a_slow_link_slows_only_the_communicators_that_cross_it() -> None:
    for seed in SEEDS:
        incident = run_incident("F7", seed, 10.0)
        layout, link = incident.run.job.layout, incident.run.plan.link
        assert link is not None
        for slow, usual in zip(incident.run.ops, incident.usual.ops, strict=True):
            if slow.kind != "collective":
                continue
            comms = layout.comm_of[slow.group][slow.ranks]  # type: ignore[index]
            crosses = np.array([layout.crosses(layout.comms[comm], link) for comm in comms])
            steps = incident.draft.steps
            for rank in range(len(slow.ranks)):
                same = np.flatnonzero(comms == comms[rank])
                transfer = slow.done[steps][:, rank] - slow.begin[steps][:, same].max(axis=1)
                before = usual.done[steps][:, rank] - usual.begin[steps][:, same].max(axis=1)
                assert (transfer > before).all() if crosses[rank] else (transfer == before).all()


def test_a_clock_is_wrong_in_all_events_of_its_host_alike() -> None:
    """Some host leaves a collective before another one enters it, by what is written."""
    seen = 0
    for seed in range(12):
        case = generate("F17", seed, view="kernel")
        found = columns(case, "comm_id", "coll_seq", "timestamp_ns", "duration_ns", "nranks", "metric_name")
        broken: dict[tuple[str, int], list[int]] = {}
        for comm, seq, start, length, _, name in zip(*found.values(), strict=True):
            if name not in ("ncclSend", "ncclRecv"):
                first_end, last_start = broken.setdefault((comm, seq), [2**62, 0])
                broken[comm, seq] = [min(first_end, start + length), max(last_start, start)]
        seen += any(first_end < last_start for first_end, last_start in broken.values())
        assert case.truth.verdict == "healthy"
        assert not case.truth.culprits
    assert seen >= 6


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_truth_is_consistent(family: str) -> None:
    for seed in SEEDS:
        for view in ("probe", "kernel", "optrace"):
            truth = generate(family, seed, 5.0, view).truth  # type: ignore[arg-type]
            assert truth.verdict in truth.accepted
            assert truth.is_single == (len(truth.culprits) == 1)
            assert truth.is_clean == (family in ("F17", "F18"))
            assert (truth.hang_ns is not None) == (truth.verdict == "hang")
            assert truth.spread_ns > 0
