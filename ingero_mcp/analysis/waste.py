"""Waste: how much longer the steps of a finding took than they would have without it. Waits are not counted.

A step is slow once, however many findings it belongs to: what an earlier finding of the job accounts for is not counted
again with a later one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.comparison import Comparison
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.replay import Ideal, ideal_steps
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.work import COMPUTING

_FEW: Final = 3
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


def waste(
    evidence: Evidence, steps: Steps, finding: Finding, comparison: Comparison | None, counted: Counted = NOTHING
) -> Waste | None:
    """The wall time that a finding cost beyond what is `counted`. None where nothing says how long anything took.

    Against the healthy steps of the same window where there are enough; else against a replay of what was recorded with
    the work shared out evenly; else by how much its own work is above its peers', beyond what the next of them is.
    For a hang see `standstill`.
    """
    if finding.affected is None or finding.lost_ns <= 0:
        return None
    is_usual = finding.baseline_step_ns is not None and _is_told_apart(steps, finding)
    # What a host does before it launches is no operation that could be replayed.
    is_computing = comparison is not None and comparison.matrix.measures == COMPUTING
    is_uneven = finding.verdict == "imbalance" or (finding.verdict == "straggler" and is_computing)
    ideal = ideal_steps(evidence) if is_uneven and not is_usual else None
    # A replay tells what all that is uneven costs, in all steps.
    own = finding.affected.steps if ideal is None else ideal.steps.tolist()
    after = replace(counted, steps=counted.steps.union(own))
    left = frozenset(own) - counted.steps
    found = _of_steps(steps, finding, comparison, ideal, left, is_usual=is_usual)
    return None if found is None else replace(found, counted=after)


def _is_told_apart(steps: Steps, finding: Finding) -> bool:
    """Whether steps of known length are affected, and enough are not to tell what is usual."""
    assert finding.affected is not None
    affected = np.isin(steps.numbers, finding.affected.steps) & np.isfinite(steps.duration_ns)
    healthy = finding.affected.total - len(finding.affected.steps)
    return bool(affected.any()) and healthy >= max(_FEW, _ENOUGH * finding.affected.total)


def _of_steps(
    steps: Steps,
    finding: Finding,
    comparison: Comparison | None,
    ideal: Ideal | None,
    left: frozenset[int],
    *,
    is_usual: bool,
) -> Waste | None:
    """The waste in the steps that are left."""
    chosen = list(left)
    durations = np.nan_to_num(steps.duration_ns)
    whole_ns = float(durations.sum())
    if is_usual:
        inside = np.isin(steps.numbers, chosen) & np.isfinite(steps.duration_ns)
        # Steps that scatter below the usual are no gain: they would have without it too.
        lost_ns = max(float((durations[inside] - (finding.baseline_step_ns or 0.0)).sum()), 0.0)
        return Waste(min(lost_ns, whole_ns), whole_ns, "affected steps against the usual step of this window")
    if ideal is not None:
        inside = np.isin(ideal.steps, chosen)
        lost_ns = max(float((ideal.actual_ns - ideal.ideal_ns)[inside].sum()), 0.0)
        how = "replay of the recorded operations with the work shared out evenly (what-if)"
        return Waste(lost_ns, float(ideal.actual_ns.sum()), how)
    if not whole_ns:
        return None
    above_ns = _above_the_next(finding, comparison, chosen)
    if above_ns is not None:
        how = "its own work above its peers', beyond that of the next rank; some of it may have been hidden"
        return Waste(min(above_ns, whole_ns), whole_ns, how, is_bound=True)
    how = "what is longer than usual, summed over the steps; some of it may have been hidden"
    share = len(left) / len(finding.affected.steps) if finding.affected and finding.affected.steps else 1.0
    return Waste(min(finding.lost_ns * share, whole_ns), whole_ns, how, is_bound=True)


def _above_the_next(finding: Finding, comparison: Comparison | None, chosen: list[int]) -> float | None:
    """By how much the culprits' excess is above that of the next rank, summed over the chosen steps."""
    if comparison is None or not finding.culprits:
        return None
    at_fault = np.isin(comparison.matrix.ranks, [one.rank for one in finding.culprits])
    if not at_fault.any() or at_fault.all():
        return None
    inside = np.isin(comparison.matrix.steps, chosen)
    if not inside.any():
        return None if chosen else 0.0
    excess = np.nan_to_num(comparison.excess_ns[inside])
    most, next_most = excess[:, at_fault].max(axis=1), excess[:, ~at_fault].max(axis=1)
    return float(np.clip(most - np.maximum(next_most, 0), 0, None).sum())


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
