"""In a pipeline a slow rank makes ranks of other stages late: who arrives last at a collective is not who is slow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ingero_mcp.synth.scenario.durations import draw_durations
from ingero_mcp.synth.scenario.job import draw_job
from ingero_mcp.synth.scenario.plan import nothing
from ingero_mcp.synth.scenario.run import Run, simulate

CULPRIT = 0


def slow_worker(seed: int, factor: float) -> Run:
    """4 stages of 4 replicas; the first rank of the first stage computes slower by a factor in every step.

    The first and the last stage share weights, and sum their gradients before the others do.
    """
    random = np.random.default_rng(seed)
    job = draw_job(random, seed, ((4, 4, 1, 4),))
    job = replace(job, layout=replace(job.layout, embedding=True), schedule="1f1b", micro_batches=8, steps=40)
    plan = nothing(job.steps, job.layout.world)
    plan.gpu_factor[:, CULPRIT] *= factor
    return simulate(job, draw_durations(job, random), plan, seed)


def last_at_gradient_sums(run: Run) -> list[int]:
    """Per step the rank that is the most behind its group at the reduce-scatter of gradients."""
    late = np.full((run.job.steps, run.job.layout.world), -np.inf)
    for op in run.ops:
        if op.name == "ncclReduceScatter":
            late[:, op.ranks] = op.begin - np.median(op.begin, axis=1, keepdims=True)
    return late.argmax(axis=1).tolist()


def most_work_for_its_stage(run: Run) -> list[int]:
    """Per step the rank whose own work is the most above the median of its stage."""
    work = np.zeros((run.job.steps, run.job.layout.world))
    for op in run.ops:
        if op.kind == "compute":
            work[:, op.ranks] += op.done - op.begin
    per_stage = work.reshape(run.job.steps, run.job.layout.pp, -1)
    return (per_stage - np.median(per_stage, axis=2, keepdims=True)).reshape(work.shape).argmax(axis=1).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_the_latest_arriver_at_the_sum_of_gradients_is_of_another_stage(seed: int) -> None:
    run = slow_worker(seed, 2.3)
    named = Counter(last_at_gradient_sums(run))
    assert named[CULPRIT] <= 0.1 * run.job.steps
    # All of those who are named are in the culprit's pipeline: it made them late.
    ((often, _),) = named.most_common(1)
    assert run.job.layout.place(often)[1] == run.job.layout.place(CULPRIT)[1]


@pytest.mark.parametrize("seed", range(5))
def test_own_work_against_the_stage_names_the_slow_rank(seed: int) -> None:
    run = slow_worker(seed, 2.3)
    assert set(most_work_for_its_stage(run)) == {CULPRIT}


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_every_stage_of_the_pipeline_is_late_when_one_is_slow(schedule: str) -> None:
    random = np.random.default_rng(3)
    job = draw_job(random, 3, ((4, 4, 1, 4),))
    layout = replace(job.layout, embedding=False)
    job = replace(job, layout=layout, schedule=schedule, micro_batches=8, steps=20)  # type: ignore[arg-type]
    durations = draw_durations(job, random)
    plan = nothing(job.steps, job.layout.world)
    plan.gpu_factor[:, CULPRIT] *= 2.0
    run = simulate(job, durations, plan, 3)
    for op in run.ops:
        if op.name == "ncclReduceScatter":
            late = np.median(op.begin - np.median(op.begin, axis=1, keepdims=True), axis=0)
            assert late[0] > 0.2 * job.compute_ns
            assert np.abs(late[1:]).max() < 0.1 * job.compute_ns


def test_a_pipeline_has_room_for_a_delay_that_its_first_stage_has_not() -> None:
    """A host that begins late on the last stage costs nothing: the first batch is still on its way to it."""
    random = np.random.default_rng(4)
    job = draw_job(random, 4, ((4, 2, 1, 2),))
    durations = draw_durations(job, random)
    usual = simulate(job, durations, nothing(job.steps, job.layout.world), 4)
    lost = []
    for rank in (0, job.layout.world - 1):
        plan = nothing(job.steps, job.layout.world)
        plan.blocked_ns[:, rank] = job.compute_ns // (10 * job.layout.pp)
        lost.append(simulate(job, durations, plan, 4).length_ns - usual.length_ns)
    assert lost[0] > 5 * max(lost[1], 1)
