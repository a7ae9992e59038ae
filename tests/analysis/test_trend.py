"""Whether lateness grows, and that chance does not."""

from __future__ import annotations

import numpy as np
import pytest

from ingero_mcp.analysis.trend import trend_of
from ingero_mcp.analysis.verdict import diagnose
from tests.analysis.slow_job import MS, calls, evidence, noise


@pytest.mark.parametrize("seed", range(3))
def test_what_grows_is_told_from_what_stays_and_what_shrinks(seed: int) -> None:
    scatter = np.random.default_rng(seed).normal(0, 3, 30)
    level = np.linspace(40, 80, 30) + scatter
    rising, falling, flat = (trend_of(one * MS) for one in (level, level[::-1], 60 + scatter))
    assert rising is not None
    assert falling is not None
    assert flat is not None
    assert (rising.grows, rising.shrinks) == (True, False)
    assert (falling.grows, falling.shrinks) == (False, True)
    assert (flat.grows, flat.shrinks) == (False, False)
    assert "grows: 4" in rising.statement.statement
    assert "neither" in flat.statement.statement


def test_chance_grows_less_than_once_in_a_hundred() -> None:
    random = np.random.default_rng(1)
    found = [trend_of(random.normal(60, 20, 24)) for _ in range(400)]
    assert sum(one is not None and (one.grows or one.shrinks) for one in found) <= 4


def test_a_few_steps_have_no_trend() -> None:
    assert trend_of(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) is None


def test_the_finding_says_so_and_who_takes_turns() -> None:
    work = noise(150, 8)
    work[10::10, 3] += np.linspace(30, 70, 14)
    said = diagnose(evidence(calls(work))).findings[0]
    assert said.grows
    assert any("it grows" in one.statement for one in said.statements)
    turns = noise(150, 8)
    for rank in range(4):
        turns[5 + 4 * rank :: 30, rank] += 60
    said = diagnose(evidence(calls(turns))).findings[0]
    assert not said.grows
    assert any("take turns" in one.statement for one in said.statements)
