"""Caveats: what an answer rests on, and what it could not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.verdict import Diagnosis
from ingero_mcp.analysis.whole import recorded_share
from ingero_mcp.analysis.words import duration_text, listed, plural, ranks_text
from ingero_mcp.tools.explanation import rounded
from ingero_mcp.tools.jobs import MAX_JOBS, Job
from ingero_mcp.tools.nearest import quoted

_MOST_GAPS: Final = 10
_WHOLE: Final = 0.9


def clock_bound_ms(diagnosis: Diagnosis) -> float | None:
    """How far times of two hosts may be off against each other at worst; 0 if there is one clock only.

    None where some clocks have no common reference, so that nothing can be said.
    """
    clocks = set(distinct(diagnosis.evidence.calls.clock).tolist())
    if len(clocks) < 2:
        return 0.0
    if not any(clocks <= group for group in diagnosis.clocks.connected):
        return None
    bounds = dict.fromkeys(clocks, 0.0)
    for one in diagnosis.clocks.offsets:
        if one.clock in clocks:
            bounds[one.clock] = max(bounds[one.clock], one.bound_ns)
    # Each is against the reference: two of them may be off by both.
    worst = sum(sorted(bounds.values())[-2:])
    return rounded(worst / 1e6) if np.isfinite(worst) else None


def gaps(diagnosis: Diagnosis) -> list[str]:
    """What was not recorded."""
    evidence = diagnosis.evidence
    lost: dict[str, int] = {}
    for gap in evidence.gaps:
        lost[gap.node_id] = lost.get(gap.node_id, 0) + gap.lost
    said = [f"{node} lost {plural(count, 'event')}" for node, count in sorted(lost.items())]
    ranks = set(distinct(evidence.calls.rank).tolist()) | set(evidence.places)
    if evidence.world_size and len(ranks) < evidence.world_size:
        said.append(f"{len(ranks)} of {evidence.world_size} ranks were seen")
    if evidence.unaligned:
        said.append(f"ranks {ranks_text(evidence.unaligned)} are unaligned")
    share = recorded_share(evidence.calls)
    if share < _WHOLE:
        said.append(f"{share:.0%} of the collectives that were counted are recorded: numbers are missing on all ranks")
    return [*said[:_MOST_GAPS], *([f"{len(said) - _MOST_GAPS} more"] if len(said) > _MOST_GAPS else [])]


def notes(diagnosis: Diagnosis, cases: Sequence[tuple[Job, Diagnosis]], *, is_all: bool) -> list[str]:
    """What must be known to read the answer."""
    said = list(diagnosis.evidence.notes)
    first = diagnosis.findings[0]
    said += _weaker(first)
    if diagnosis.steps.source != "named" and first.affected is not None:
        how = "the period of the collectives" if diagnosis.steps.source == "period" else "single collectives"
        said.append(f"no event names its step: steps are {how}, counted by number")
    said += [
        f"the clock {_owner(diagnosis, step.clock)} jumped by about {duration_text(step.jump_ns)} in the window"
        for step in diagnosis.clocks.steps[:3]
    ]
    if len(cases) > 1:
        names = listed([quoted(str(job.job_id)) for job, _ in cases])
        said.insert(0, f"the worst of {len(cases)} jobs is explained (job_id chooses another of {names})")
    if not is_all:
        said.insert(0, f"more than {MAX_JOBS} jobs are in this window: only those with most events were looked at")
    return said


def _weaker(first: Finding) -> list[str]:
    better = [cause for cause, confidence in first.alternatives if confidence >= first.confidence]
    return [f"this cause is no likelier than {' or '.join(better)}"] if better else []


def _owner(diagnosis: Diagnosis, clock: int) -> str:
    calls = diagnosis.evidence.calls
    ranks = np.unique(calls.rank[calls.clock == clock]).tolist()
    node = diagnosis.evidence.node(ranks[0]) if ranks else None
    return f"of {node}" if node and node != "unknown" else f"of rank {ranks_text(ranks)}"
