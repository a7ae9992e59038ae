"""Replay and waste: what the steps would take with the work shared out evenly, and what a finding cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.evidence import Evidence, Work
from ingero_mcp.analysis.replay import healed_steps, ideal_steps, levelled_steps
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.verdict import diagnose
from ingero_mcp.analysis.waste import Waste, waste
from tests.analysis.slow_job import MS, calls, evidence, noise


def recorded(work_ms: Floats, timing: Literal["kernel_gpu", "host_sync"] = "kernel_gpu") -> Evidence:
    """A data parallel job whose computing was recorded too."""
    made = calls(work_ms, timed=True)
    begin = made.enter_ns - (work_ms * MS).astype(np.int64).reshape(-1)
    work = Work(made.rank, made.step, begin, made.enter_ns, np.zeros(len(made), dtype=np.bool_))
    return replace(evidence(made, timing), work=work)


def wasted(job: Evidence) -> Waste | None:
    said = diagnose(job)
    return waste(job, said.steps, said.findings[0], said.comparison)


@pytest.mark.parametrize("factor", [1.2, 1.5, 2.0, 4.0])
def test_with_the_work_shared_out_evenly_a_step_takes_the_mean(factor: float) -> None:
    work = np.full((30, 4), 100.0)
    work[:, 2] *= factor
    ideal = ideal_steps(recorded(work))
    assert ideal is not None
    assert np.allclose(ideal.actual_ns, (100 * factor + 2) * MS, rtol=1e-3)
    assert np.allclose(ideal.ideal_ns, (100 * (3 + factor) / 4 + 2) * MS, rtol=1e-3)


def test_a_job_that_is_even_loses_nothing() -> None:
    ideal = ideal_steps(recorded(np.full((30, 4), 100.0)))
    assert ideal is not None
    assert np.allclose(ideal.actual_ns, ideal.ideal_ns, rtol=1e-6)


def test_where_computing_was_not_recorded_there_is_nothing_to_replay() -> None:
    assert ideal_steps(evidence(calls(noise(20, 4), timed=True), "kernel_gpu")) is None


@pytest.mark.parametrize("factor", [1.05, 1.5, 4.0])
def test_a_rank_that_works_like_its_peers_makes_a_step_as_long_as_theirs(factor: float) -> None:
    work = np.full((30, 4), 100.0)
    work[:, 2] *= factor
    healed = healed_steps(recorded(work), Roles(dict.fromkeys(range(4), 0), named=True), {2})
    assert healed is not None
    assert np.allclose(healed.ideal_ns, 102 * MS, rtol=1e-3)


def test_of_a_rank_without_peers_nothing_says_how_it_should_work() -> None:
    work = np.full((30, 4), 100.0)
    assert healed_steps(recorded(work), Roles({0: 0, 1: 0, 2: 1, 3: 0}, named=True), {2}) is None


def test_levelled_stages_share_their_work_and_nothing_else() -> None:
    work = noise(30, 4)
    level = np.median(work, axis=0)
    work[:, 2:] *= 1.5
    levelled = levelled_steps(recorded(work), Roles({0: 0, 1: 0, 2: 1, 3: 1}, named=True))
    assert levelled is not None
    # Two of four ranks had half as much again to do: levelled all have a quarter more.
    assert np.median(levelled.ideal_ns) == pytest.approx((1.25 * level.mean() + 2) * MS, rel=0.03)


@pytest.mark.parametrize("late_ms", [20, 60])
def test_steps_that_were_late_cost_what_they_took_longer_than_the_usual_one(late_ms: int) -> None:
    work = noise(120, 8)
    work[10::12, 3] += late_ms
    job = evidence(calls(work))
    found = wasted(job)
    assert found is not None
    assert not found.is_bound
    assert found.lost_ns == pytest.approx(late_ms * MS * len(work[10::12]), rel=0.1)


def test_what_is_late_in_every_step_is_told_against_a_replay_or_said_to_be_a_bound() -> None:
    work = noise(60, 8)
    work[:, 3] += 50
    with_work, without = recorded(work), evidence(calls(work))
    for job, is_bound in ((with_work, False), (without, True)):
        found = wasted(job)
        assert found is not None
        assert found.is_bound == is_bound
        assert found.lost_ns == pytest.approx(60 * 50 * MS, rel=0.2)


def test_a_healthy_job_wastes_nothing() -> None:
    job = evidence(calls(noise(60, 8)))
    assert wasted(job) is None
