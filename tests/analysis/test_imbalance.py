"""Imbalance: a stage or the sequences, and no rank; and neither where ranks only differ a little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.comparison import compare
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.imbalance import sequence_imbalance, stage_imbalance
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.steps import find_steps
from ingero_mcp.analysis.stragglers import find_stragglers, without
from ingero_mcp.analysis.work import COMPUTING
from tests.analysis.slow_job import alike, calls, matrix, noise

STAGES = Roles({rank: rank // 4 for rank in range(16)}, named=True)


def stage(work_ms: Floats, *, recorded: bool = True, is_sure: bool = True) -> Finding | None:
    made = matrix(work_ms)
    made = replace(made, measures=COMPUTING) if recorded else made
    comparison = compare(made, STAGES, find_steps(calls(work_ms)))
    found = find_stragglers(comparison, STAGES, {})
    return stage_imbalance(comparison, without(comparison, found), STAGES, is_sure=is_sure)


def sequences(work_ms: Floats) -> Finding | None:
    roles = alike(work_ms.shape[1])
    comparison = compare(matrix(work_ms), roles, find_steps(calls(work_ms)))
    found = find_stragglers(comparison, roles, {})
    return sequence_imbalance(comparison, without(comparison, found), roles)


@pytest.mark.parametrize("slow", range(4))
def test_the_stage_with_more_work_is_named_and_no_rank(slow: int) -> None:
    work = noise(60, 16)
    work[:, 4 * slow : 4 * slow + 4] *= 1.5
    found = stage(work)
    assert found is not None
    assert (found.verdict, found.cause, found.culprits) == ("imbalance", "stage_imbalance", ())
    assert [(one.kind, one.id, one.ranks) for one in found.groups] == [
        ("stage", str(slow), tuple(range(4 * slow, 4 * slow + 4)))
    ]


def test_a_little_more_work_is_no_imbalance() -> None:
    work = noise(60, 16)
    work[:, 12:] *= 1.07
    assert stage(work) is None


def test_what_was_not_recorded_as_computing_has_to_differ_more() -> None:
    work = noise(60, 16)
    work[:, 12:] *= 1.13
    assert stage(work) is not None
    assert stage(work, recorded=False) is None
    work[:, 12:] *= 1.13
    assert stage(work, recorded=False) is not None


def test_a_stage_has_to_stand_out_from_how_unlike_the_others_are() -> None:
    work = noise(60, 16) * np.repeat([1.0, 1.12, 1.0, 1.2], 4)
    assert stage(work) is None
    assert stage(work * np.repeat([1.0, 1.0, 1.0, 1.3], 4)) is not None


def test_a_single_slow_rank_makes_no_stage_imbalance() -> None:
    work = noise(60, 16)
    work[:, 2] *= 2.5
    assert stage(work) is None


def test_time_that_is_not_the_work_of_gpus_says_nothing_about_stages() -> None:
    made = matrix(noise(60, 16) * np.repeat([1.0, 1.0, 1.0, 3.0], 4), is_gpu_work=False)
    comparison = compare(made, STAGES, find_steps(calls(noise(60, 16))))
    assert stage_imbalance(comparison, made, STAGES, is_sure=True) is None


def test_batches_that_differ_from_step_to_step_are_an_imbalance_of_sequences() -> None:
    variation = 0.13
    drawn = np.random.default_rng(0).gamma(1 / variation**2, variation**2, (100, 8))
    found = sequences(100 * drawn)
    assert found is not None
    assert (found.cause, found.culprits) == ("sequence_imbalance", ())
    assert found.groups[0].ranks == tuple(range(8))


def test_the_usual_spread_is_no_imbalance_of_sequences() -> None:
    assert sequences(noise(100, 8, sigma=4.0)) is None


def test_one_rank_that_is_always_the_busiest_is_no_imbalance_of_sequences() -> None:
    drawn = 100 * (1 + 0.13 * np.random.default_rng(1).normal(size=(100, 8)))
    drawn[:, 5] += 20
    assert sequences(drawn) is None


@pytest.mark.parametrize("travels", [True, False])
def test_uneven_batches_are_uneven_in_every_stage_alike(travels: bool) -> None:
    random, variation = np.random.default_rng(3), 0.13
    drawn = [random.gamma(1 / variation**2, variation**2, (100, 4)) for _ in range(4)]
    work = 100 * np.concatenate(drawn[:1] * 4 if travels else drawn, axis=1)
    comparison = compare(matrix(work), STAGES, find_steps(calls(work)))
    found = sequence_imbalance(comparison, comparison.matrix, STAGES)
    assert (found is not None) == travels
