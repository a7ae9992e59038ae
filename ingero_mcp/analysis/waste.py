"""Waste: how much longer the steps of a finding took than they would have without it. Waits are not counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.comparison import Comparison
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.replay import ideal_steps
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.work import COMPUTING

_FEW: Final = 3
_ENOUGH: Final = 0.1  # of the steps have to be healthy to tell what is usual


@dataclass(frozen=True, slots=True)
class Waste:
    """`lost_ns` of `whole_ns` of wall time; `how` says against what. `is_bound`: at most so much."""

    lost_ns: float
    whole_ns: float
    how: str
    is_bound: bool = False


def waste(evidence: Evidence, steps: Steps, finding: Finding, comparison: Comparison | None) -> Waste | None:
    """The wall time that a finding cost. None where it is about no steps, or nothing says how long they took.

    Against the healthy steps of the same window where there are enough; else against a replay of what was recorded with
    the work shared out evenly; else by how much its own work is above its peers', beyond what the next of them is.
    """
    if finding.affected is None or finding.lost_ns <= 0:
        return None
    durations = np.nan_to_num(steps.duration_ns)
    whole_ns = float(durations.sum())
    affected = np.isin(steps.numbers, finding.affected.steps) & np.isfinite(steps.duration_ns)
    usual_ns = finding.baseline_step_ns
    healthy = finding.affected.total - len(finding.affected.steps)
    if usual_ns is not None and affected.any() and healthy >= max(_FEW, _ENOUGH * finding.affected.total):
        # Steps that scatter below the usual are no gain: they would have without it too.
        lost_ns = max(float((durations[affected] - usual_ns).sum()), 0.0)
        return Waste(min(lost_ns, whole_ns), whole_ns, "affected steps against the usual step of this window")
    # What a host does before it launches is no operation that could be replayed.
    is_computing = comparison is not None and comparison.matrix.measures == COMPUTING
    is_uneven = finding.verdict == "imbalance" or (finding.verdict == "straggler" and is_computing)
    ideal = ideal_steps(evidence) if is_uneven else None
    if ideal is not None:
        lost_ns = max(float((ideal.actual_ns - ideal.ideal_ns).sum()), 0.0)
        how = "replay of the recorded operations with the work shared out evenly (what-if)"
        return Waste(lost_ns, float(ideal.actual_ns.sum()), how)
    if not whole_ns:
        return None
    above_ns = _above_the_next(finding, comparison)
    if above_ns is not None:
        how = "its own work above its peers', beyond that of the next rank; some of it may have been hidden"
        return Waste(min(above_ns, whole_ns), whole_ns, how, is_bound=True)
    how = "what is longer than usual, summed over the steps; some of it may have been hidden"
    return Waste(min(finding.lost_ns, whole_ns), whole_ns, how, is_bound=True)


def _above_the_next(finding: Finding, comparison: Comparison | None) -> float | None:
    """By how much the culprits' excess is above that of the next rank, summed over the affected steps."""
    if comparison is None or finding.affected is None or not finding.culprits:
        return None
    at_fault = np.isin(comparison.matrix.ranks, [one.rank for one in finding.culprits])
    inside = np.isin(comparison.matrix.steps, finding.affected.steps)
    if not at_fault.any() or at_fault.all() or not inside.any():
        return None
    excess = np.nan_to_num(comparison.excess_ns[inside])
    most, next_most = excess[:, at_fault].max(axis=1), excess[:, ~at_fault].max(axis=1)
    return float(np.clip(most - np.maximum(next_most, 0), 0, None).sum())
