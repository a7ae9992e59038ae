"""Difference: which rank's own work changed from one recording to another, and that nothing did where nothing did."""

from __future__ import annotations

import numpy as np
import pytest

from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.difference import Difference, difference
from ingero_mcp.analysis.verdict import diagnose
from tests.analysis.slow_job import MS, calls, evidence, noise


def between(before_ms: Floats, after_ms: Floats, *, timed: bool = False, then_timed: bool = False) -> Difference:
    def timing(is_timed: bool) -> str:
        return "kernel_gpu" if is_timed else "host_sync"

    one = evidence(calls(before_ms, timed=timed), timing(timed))  # type: ignore[arg-type]
    other = evidence(calls(after_ms, timed=then_timed), timing(then_timed))  # type: ignore[arg-type]
    return difference(diagnose(one), diagnose(other))


def real(found: Difference) -> list[int]:
    return [change.name for change in found.ranks if change.is_real]


@pytest.mark.parametrize("rank", [0, 5])
@pytest.mark.parametrize("every", [1, 10])
def test_the_rank_that_became_slower_is_the_one_that_changed(rank: int, every: int) -> None:
    after = noise(80, 8, seed=2)
    after[::every, rank] += 40
    found = between(noise(80, 8), after)
    assert real(found) == [rank]
    assert found.ranks[0].change_ns == pytest.approx(40 * MS / every, rel=0.1)
    assert found.after_step_ns - found.before_step_ns == pytest.approx(40 * MS / every, rel=0.15)


def test_what_became_faster_is_told_as_such() -> None:
    before = noise(80, 8)
    before[:, 3] += 30
    found = between(before, noise(80, 8, seed=2))
    assert real(found) == [3]
    assert found.ranks[0].change_ns < 0


def test_the_same_job_on_other_days_changed_nothing() -> None:
    assert sum(bool(real(between(noise(60, 8, seed), noise(60, 8, seed + 100)))) for seed in range(20)) <= 1


def test_what_all_ranks_need_longer_for_changed_on_all_of_them() -> None:
    found = between(noise(60, 8), noise(60, 8, seed=2) * 1.2)
    assert sorted(real(found)) == list(range(8))


def test_ranks_that_came_and_went_are_named() -> None:
    one = diagnose(evidence(calls(noise(40, 4))))
    made = calls(noise(40, 5, seed=2))
    other = diagnose(evidence(made.where(np.flatnonzero(made.rank != 0))))
    found = difference(one, other)
    assert (found.missing, found.added) == ((0,), (4,))


def test_what_was_measured_in_different_ways_is_not_compared() -> None:
    found = between(noise(40, 4), noise(40, 4, seed=2), timed=False, then_timed=True)
    assert (found.measures, found.ranks) == ("", ())
