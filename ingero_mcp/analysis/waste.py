"""Waste: how much longer the steps of a finding took than they would have without it. Waits are not counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.replay import ideal_steps
from ingero_mcp.analysis.steps import Steps


@dataclass(frozen=True, slots=True)
class Waste:
    """`lost_ns` of `whole_ns` of wall time; `how` says against what. `is_bound`: at most so much."""

    lost_ns: float
    whole_ns: float
    how: str
    is_bound: bool = False


def waste(evidence: Evidence, steps: Steps, finding: Finding) -> Waste | None:
    """The wall time that a finding cost. None where it is about no steps, or nothing says how long they took.

    Against the healthy steps of the same window where there are some; else against a replay of what was recorded with
    the work shared out evenly; else what its own work exceeds its peers' by, which others may have hidden in part.
    """
    if finding.affected is None or finding.lost_ns <= 0:
        return None
    durations = np.nan_to_num(steps.duration_ns)
    whole_ns = float(durations.sum())
    affected = np.isin(steps.numbers, finding.affected.steps) & np.isfinite(steps.duration_ns)
    usual_ns = finding.baseline_step_ns
    if usual_ns is not None and affected.any() and len(finding.affected.steps) < finding.affected.total:
        # Steps that scatter below the usual are no gain: they would have without it too.
        lost_ns = max(float((durations[affected] - usual_ns).sum()), 0.0)
        return Waste(min(lost_ns, whole_ns), whole_ns, "affected steps against the usual step of this window")
    ideal = ideal_steps(evidence)
    if ideal is not None:
        lost_ns = max(float((ideal.actual_ns - ideal.ideal_ns).sum()), 0.0)
        how = "replay of the recorded operations with the work shared out evenly (what-if)"
        return Waste(lost_ns, float(ideal.actual_ns.sum()), how)
    if not whole_ns:
        return None
    how = "its own work above that of its peers, summed; an upper bound, as some of it may have been hidden"
    return Waste(min(finding.lost_ns, whole_ns), whole_ns, how, is_bound=True)
