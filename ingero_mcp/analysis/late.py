"""Who is late, by whatever measure: own work first, then what shows a late host better than all of the work does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.calm import LEAST_RANKS, LEAST_STEPS
from ingero_mcp.analysis.comparison import Comparison, compare
from ingero_mcp.analysis.evidence import Evidence, Matrix
from ingero_mcp.analysis.first_calls import until_first_call
from ingero_mcp.analysis.gpu_work import outside_of_all
from ingero_mcp.analysis.idle import is_paused
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.stragglers import Straggler, find_stragglers

_NOW_AND_THEN: Final = 0.5  # of the steps


@dataclass(frozen=True, slots=True, eq=False)
class Late:
    """Ranks that are late, and the comparison that told it."""

    stragglers: tuple[Straggler, ...]
    comparison: Comparison


def who_is_late(
    evidence: Evidence, steps: Steps, roles: Roles, comparison: Comparison | None, of_gpus: Comparison | None
) -> tuple[Late, ...]:
    """The ranks that are late. Where computing was recorded it comes first; then who leaves its GPU without work, or
    begins its steps late."""
    if comparison is None or of_gpus is None or not _is_enough(of_gpus.matrix):
        return ()
    first = Late(find_stragglers(of_gpus, roles, evidence.hosts), of_gpus)
    told = {one.rank for one in first.stragglers}
    more = (_paused(evidence, steps, roles), _late_to_begin(evidence, steps, roles))
    rest = (
        Late(tuple(straggler for straggler in one.stragglers if straggler.rank not in told), one.comparison)
        for one in more
        if one is not None
    )
    return tuple(one for one in (first, *rest) if one.stragglers)


def _paused(evidence: Evidence, steps: Steps, roles: Roles) -> Late | None:
    """Ranks whose GPU has long pauses in which nothing was recorded of it."""
    idle = outside_of_all(evidence, steps, roles) if _is_complete(evidence) else None
    if idle is None or not _is_enough(idle):
        return None
    pauses = compare(idle, roles, steps)
    least_ns = max(pauses.sigma_ns.values())
    found = find_stragglers(pauses, roles, evidence.hosts)
    return Late(tuple(one for one in found if one.lateness_ns > least_ns and is_paused(one, evidence, steps)), pauses)


def _late_to_begin(evidence: Evidence, steps: Steps, roles: Roles) -> Late | None:
    """Ranks that are now and then late in their first communication of a step."""
    first = until_first_call(evidence, steps)
    if first is None or not _is_enough(first):
        return None
    begun = compare(first, roles, steps)
    found = find_stragglers(begun, roles, evidence.hosts)
    # When a rank communicates first in most steps is its place in the pipeline.
    return Late(tuple(one for one in found if len(one.steps) <= _NOW_AND_THEN * len(first.steps)), begun)


def _is_complete(evidence: Evidence) -> bool:
    """Whether no rank is missing beside those that were recorded: a GPU may be idle because it waits for that one."""
    seen = set(np.unique(evidence.calls.rank).tolist())
    for known in evidence.communicators.values():
        present = sum(rank in seen for rank in known.members)
        # Of a group of tensor parallel ranks one may stand for all: then the communicator of everybody is not whole.
        if 1 < present < known.nranks and known.nranks != evidence.world_size:
            return False
    return True


def _is_enough(matrix: Matrix) -> bool:
    return len(matrix.ranks) >= LEAST_RANKS and len(matrix.steps) >= LEAST_STEPS
