"""Waste: how much longer the steps of a finding took than they would have without it. Waits are not counted.

A step is slow once, however many findings it belongs to: what an earlier finding of the job accounts for is not counted
again with a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.comparison import Comparison
from ingero_mcp.analysis.evidence import Evidence, Matrix
from ingero_mcp.analysis.expected import expected_steps
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.replay import Ideal, healed_steps, ideal_steps, levelled_steps
from ingero_mcp.analysis.roles import find_roles
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.work import computing

_FEW: Final = 6
_ENOUGH: Final = 0.1  # of the steps have to be healthy to tell what is usual


@dataclass(frozen=True, slots=True)
class Counted:
    """What findings account for: these steps, and all time from `since_ns` on."""

    steps: frozenset[int] = frozenset()
    since_ns: int | None = None


NOTHING: Final = Counted()


@dataclass(frozen=True, slots=True)
class Waste:
    """`lost_ns` of `whole_ns` of wall time; `how` says against what. `is_bound`: at most so much.

    `counted` is what is accounted for with it and before it.
    """

    lost_ns: float
    whole_ns: float
    how: str
    is_bound: bool = False
    counted: Counted = NOTHING


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    evidence: Evidence
    steps: Steps
    finding: Finding
    comparison: Comparison | None
    affected: Bools

    @property
    def whole_ns(self) -> float:
        return float(np.nansum(self.steps.duration_ns))

    @property
    def at_fault(self) -> frozenset[int]:
        return frozenset(one.rank for one in self.finding.culprits)


@dataclass(frozen=True, slots=True, eq=False)
class _Longer:
    """By how much each of these steps took longer: nanoseconds, of `whole_ns` that all steps took."""

    steps: Int64s
    by_ns: Floats
    whole_ns: float
    how: str
    is_bound: bool = False


Way: TypeAlias = Callable[[_Case], _Longer | None]


def waste(
    evidence: Evidence, steps: Steps, finding: Finding, comparison: Comparison | None, counted: Counted = NOTHING
) -> Waste | None:
    """The wall time that a finding cost beyond what is `counted`. None where nothing says how long anything took.

    By the first of `WAYS` that the evidence allows. For a hang see `standstill`.
    """
    if finding.affected is None or finding.lost_ns <= 0:
        return None
    affected = np.isin(steps.numbers, finding.affected.steps) & np.isfinite(steps.duration_ns)
    case = _Case(evidence, steps, finding, comparison, affected)
    found = next((found for found in (way(case) for way in WAYS) if found is not None), None)
    if found is None:
        return None
    left = ~np.isin(found.steps, list(counted.steps))
    # Steps that are faster than expected are no gain: they would have been without it too.
    lost_ns = max(float(found.by_ns[left].sum()), 0.0)
    after = replace(counted, steps=counted.steps.union(found.steps.tolist()))
    return Waste(min(lost_ns, found.whole_ns), found.whole_ns, found.how, found.is_bound, after)


def _replayed_imbalance(case: _Case) -> _Longer | None:
    """A replay with the work of the stages levelled, or shared out evenly in every step."""
    if case.finding.verdict != "imbalance":
        return None
    is_stage = any(group.kind == "stage" for group in case.finding.groups)
    ideal = levelled_steps(case.evidence, find_roles(case.evidence)) if is_stage else ideal_steps(case.evidence)
    how = "the work of the stages levelled" if is_stage else "the work shared out evenly"
    return _replayed(ideal, how, None)


def _expected(case: _Case) -> _Longer | None:
    """Affected steps against what steps with the same work of the other ranks take, where a tenth is not affected."""
    affected, duration_ns = case.affected, case.steps.duration_ns
    healthy = (~affected & np.isfinite(duration_ns)).sum()
    if not affected.any() or healthy < max(_FEW, _ENOUGH * len(affected)):
        return None
    expected_ns = expected_steps(duration_ns, affected, _of_others(case))
    if expected_ns is None:
        return None
    by_ns = duration_ns[affected] - expected_ns[affected]
    how = "affected steps against others of this window in which the other ranks did the same"
    return _Longer(case.steps.numbers[affected], by_ns, case.whole_ns, how)


def _replayed_ranks(case: _Case) -> _Longer | None:
    """A replay in which the ranks at fault work like their peers."""
    if case.finding.verdict != "straggler":
        return None
    ideal = healed_steps(case.evidence, find_roles(case.evidence), case.at_fault)
    return _replayed(ideal, "the ranks at fault working like their peers", case.steps.numbers[case.affected])


def _above_the_next(case: _Case) -> _Longer | None:
    """By how much the culprits' excess is above that of the next rank, in the affected steps."""
    comparison, affected = case.comparison, case.finding.affected
    # A GPU that its counters betray is not late by what ranks do themselves.
    is_timed = any(one.lateness_ns is not None for one in case.finding.culprits)
    if comparison is None or affected is None or not case.whole_ns or not is_timed:
        return None
    at_fault = np.isin(comparison.matrix.ranks, list(case.at_fault))
    inside = np.isin(comparison.matrix.steps, affected.steps)
    if not at_fault.any() or at_fault.all() or not inside.any():
        return None
    excess = np.nan_to_num(comparison.excess_ns[inside])
    most, next_most = excess[:, at_fault].max(axis=1), excess[:, ~at_fault].max(axis=1)
    above_ns = np.clip(most - np.maximum(next_most, 0), 0, None)
    how = "its own work above its peers', beyond that of the next rank; some of it may have been hidden"
    return _Longer(comparison.matrix.steps[inside], above_ns, case.whole_ns, how, is_bound=True)


def _longer_than_usual(case: _Case) -> _Longer | None:
    """What the finding says, shared out evenly among its steps."""
    affected = case.finding.affected
    if not case.whole_ns or affected is None or not affected.steps:
        return None
    how = "what is longer than usual, summed over the steps; some of it may have been hidden"
    steps = np.array(affected.steps, dtype=np.int64)
    return _Longer(steps, np.full(len(steps), case.finding.lost_ns / len(steps)), case.whole_ns, how, is_bound=True)


WAYS: Final[tuple[Way, ...]] = (
    _replayed_imbalance,
    _replayed_ranks,
    _expected,
    _above_the_next,
    _longer_than_usual,
)
"""The best first."""


def _replayed(ideal: Ideal | None, what: str, steps: Int64s | None) -> _Longer | None:
    if ideal is None:
        return None
    chosen = np.isin(ideal.steps, steps) if steps is not None else np.ones(len(ideal.steps), dtype=np.bool_)
    by_ns = (ideal.actual_ns - ideal.ideal_ns)[chosen]
    how = f"replay of the recorded operations with {what} (what-if)"
    return _Longer(ideal.steps[chosen], by_ns, float(ideal.actual_ns.sum()), how)


def _of_others(case: _Case) -> Floats:
    """What the ranks that are not at fault did themselves, in every step; computing where it was recorded."""
    matrix: Matrix | None = computing(case.evidence, case.steps)
    if matrix is None and case.comparison is not None:
        matrix = case.comparison.matrix
    if matrix is None:
        return np.zeros((len(case.steps), 0))
    values = np.full((len(case.steps), len(matrix.ranks)), np.nan)
    known = np.isin(matrix.steps, case.steps.numbers)
    values[np.searchsorted(case.steps.numbers, matrix.steps[known])] = matrix.values[known]
    return values[:, ~np.isin(matrix.ranks, list(case.at_fault))]


def standstill(evidence: Evidence, finding: Finding, until_ns: int, counted: Counted = NOTHING) -> Waste | None:
    """What a hang cost: all GPUs stand still from its onset on. `until_ns` is when the job was last heard of.

    None where that was not later, or the onset is not known.
    """
    onset_ns = finding.onset_ns
    if onset_ns is None or onset_ns >= until_ns:
        return None
    end_ns = until_ns if counted.since_ns is None else min(counted.since_ns, until_ns)
    calls = evidence.calls.enter_ns
    first = [int(calls.min())] if len(calls) else []
    began_ns = min([onset_ns, *first, *(entry.enter_ns for entry in evidence.entries)])
    after = replace(counted, since_ns=min(onset_ns, end_ns))
    how = "the time from the onset to the newest event of the job"
    return Waste(float(max(end_ns - onset_ns, 0)), float(until_ns - began_ns), how, counted=after)
