"""Waste of several findings of one job: no step and no time is counted twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Affected, Culprit, Finding
from ingero_mcp.analysis.steps import find_steps
from ingero_mcp.analysis.verdict import diagnose
from ingero_mcp.analysis.waste import NOTHING, Counted, Waste, standstill, waste
from tests.analysis.slow_job import MS, START_NS, calls, evidence, noise
from tests.analysis.test_replay import recorded

STEPS = 120


def job() -> Evidence:
    """Steps of 102 ms, every sixth longer by 60."""
    work = noise(STEPS, 8)
    work[::6, 3] += 60
    return evidence(calls(work))


def slow(numbers: list[int]) -> Finding:
    return Finding(
        "straggler",
        "unknown",
        0.9,
        (),
        culprits=(Culprit(3),),
        affected=Affected(tuple(numbers), STEPS),
        baseline_step_ns=102.0 * MS,
        lost_ns=60.0 * MS * len(numbers),
    )


def lost(seen: Evidence, one: Finding, counted: Counted = NOTHING) -> Waste:
    found = waste(seen, find_steps(seen.calls), one, None, counted)
    assert found is not None
    return found


def test_steps_that_an_earlier_finding_accounts_for_are_not_counted_again() -> None:
    seen = job()
    late = list(range(6, STEPS, 6))
    first = lost(seen, slow(late[:12]))
    second = lost(seen, slow(late[6:]), first.counted)
    both = lost(seen, slow(late))
    assert first.lost_ns == pytest.approx(12 * 60 * MS, rel=0.1)
    # Not to the nanosecond: which steps say what is usual depends on which are affected.
    assert first.lost_ns + second.lost_ns == pytest.approx(both.lost_ns, rel=0.01)
    assert second.counted.steps == frozenset(late)
    assert lost(seen, slow(late[:3]), second.counted).lost_ns == 0


@given(st.lists(st.sets(st.integers(1, STEPS - 20), min_size=1), min_size=1, max_size=5))
def test_the_parts_are_never_more_than_what_all_their_steps_lost(groups: list[set[int]]) -> None:
    seen = job()
    counted, total = NOTHING, 0.0
    for group in groups:
        found = lost(seen, slow(sorted(group)), counted)
        counted, total = found.counted, total + found.lost_ns
    durations = np.nan_to_num(find_steps(seen.calls).duration_ns)
    most = sum(max(durations[number] - 102 * MS, 0.0) for number in counted.steps)
    assert total <= 1.02 * most + MS


def test_a_replay_accounts_for_all_steps() -> None:
    work = noise(60, 8)
    work[:, 3] += 50
    seen = recorded(work)
    said = diagnose(seen)
    found = waste(seen, said.steps, said.findings[0], said.comparison)
    assert found is not None and "replay" in found.how
    again = waste(seen, said.steps, said.findings[0], said.comparison, found.counted)
    assert again is not None and again.lost_ns == 0
    half = Counted(frozenset(range(30)))
    rest = waste(seen, said.steps, said.findings[0], said.comparison, half)
    assert rest is not None and rest.lost_ns == pytest.approx(found.lost_ns / 2, rel=0.05)


def test_a_bound_is_divided_among_the_steps_it_is_of() -> None:
    work = noise(60, 8)
    work[:, 3] += 50
    seen = evidence(calls(work))
    said = diagnose(seen)
    whole = waste(seen, said.steps, said.findings[0], said.comparison)
    rest = waste(seen, said.steps, said.findings[0], said.comparison, Counted(frozenset(range(30))))
    assert whole is not None and rest is not None and whole.is_bound and rest.is_bound
    assert rest.lost_ns == pytest.approx(whole.lost_ns / 2, rel=0.1)


def test_a_hang_costs_the_time_since_its_onset_and_two_of_a_job_not_twice() -> None:
    seen = job()
    onset_ns = START_NS + 5_000 * MS
    hang = Finding("hang", "unknown", 0.9, (), onset_ns=onset_ns)
    found = standstill(seen, hang, onset_ns + 600_000 * MS)
    assert found is not None
    assert found.lost_ns == 600_000 * MS
    assert 0 < found.lost_ns / found.whole_ns < 1
    earlier = replace(hang, onset_ns=onset_ns - 1_000 * MS)
    more = standstill(seen, earlier, onset_ns + 600_000 * MS, found.counted)
    assert more is not None and more.lost_ns == 1_000 * MS
    later = standstill(seen, replace(hang, onset_ns=onset_ns + MS), onset_ns + 600_000 * MS, more.counted)
    assert later is not None and later.lost_ns == 0


@pytest.mark.parametrize("onset_ns", [None, START_NS + 1])
def test_a_hang_since_nobody_knows_when_has_no_price(onset_ns: int | None) -> None:
    assert standstill(job(), Finding("hang", "unknown", 0.9, (), onset_ns=onset_ns), START_NS + 1) is None
