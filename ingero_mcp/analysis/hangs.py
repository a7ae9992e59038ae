"""Hangs: nobody goes on. Who is waited for, and what kept that rank.

The rules look inside one communicator at a time, since only there is it certain who waits for whom:

- a monitor says that ranks hang;
- the members called different collectives at the same position;
- a rank does not complete what its peers have completed: its GPU stopped;
- a rank has not entered what its peers wait in, and is in no other collective itself: its host stopped, or it left.

A rank that has not entered because it waits in another communicator is a waiter like the others, and a rank that is
ahead of its peers waits, however few such ranks there are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Final, TypeAlias

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.analysis.absent import left_no_trace
from ingero_mcp.analysis.assemble import by_rank
from ingero_mcp.analysis.calls import UNKNOWN
from ingero_mcp.analysis.evidence import Evidence, Sign
from ingero_mcp.analysis.findings import Culprit, Finding, Group, Statement
from ingero_mcp.analysis.frontier import (
    Frontier,
    exits,
    live_frontier,
    open_calls,
    recorded_frontier,
    timed_frontier,
)
from ingero_mcp.analysis.mismatches import mismatched
from ingero_mcp.analysis.paths import last_entries
from ingero_mcp.analysis.standstill import all_entered, stopped
from ingero_mcp.analysis.words import plural, ranks_text, who

_QUIET: Final = 20.0
"""A job hangs if it has been silent for this many of its usual times between collectives."""

_LONG: Final = 3.0
"""The same, if calls are known to be open: steps of some seconds have open calls too."""

Rule: TypeAlias = Callable[[Evidence, Frontier], tuple[Finding, ...]]


def find_hangs(evidence: Evidence) -> tuple[Finding, ...]:
    """The hangs of a job; empty if it goes on, has ended, or cannot be told to hang."""
    if (frontier := _frontier(evidence)) is not None:
        for rule in RULES:
            found = rule(evidence, frontier)
            if found:
                return found
    # What a monitor flags is only that, not who is waited for.
    return _flagged(evidence)


def _frontier(evidence: Evidence) -> Frontier | None:
    """How far the ranks have come, if they may hang."""
    if evidence.dumps or evidence.timing == semconv.RECORDER:
        recorded = recorded_frontier(evidence)
        return recorded if recorded.waiting else None
    if evidence.timing == semconv.KERNEL_GPU and (evidence.calls.done_ns == UNKNOWN).any():
        timed = timed_frontier(evidence)
        if timed.waiting:
            return timed
    return live_frontier(evidence) if _is_quiet(evidence) else None


def _flagged(evidence: Evidence) -> tuple[Finding, ...]:
    latest: dict[int, Sign] = {}
    for sign in evidence.signs:
        is_flag = sign.kind == semconv.HANG_FLAG and sign.value is not None and isfinite(sign.value)
        if is_flag and sign.rank is not None:
            latest[sign.rank] = sign
    hanging = sorted(rank for rank, sign in latest.items() if sign.value)
    if not hanging:
        return ()
    whole = len(hanging) == len(latest)
    which = "all that report" if whole else f"{len(hanging)} of {len(latest)} that report"
    statement = Statement(
        f"the monitor flags {who(hanging)} as hanging ({which})",
        float(len(hanging)),
        "ranks",
        tuple(latest[rank].event_id for rank in hanging[:8]),
    )
    group = (Group("job", evidence.job_id or semconv.UNKNOWN, tuple(hanging)),) if whole else ()
    return (
        Finding(
            "hang",
            "unknown",
            0.5,
            (statement,),
            culprits=tuple(Culprit(rank) for rank in hanging),
            groups=group,
            alternatives=(("gpu_fault", 0.3), ("host_hang", 0.3), ("network", 0.2)),
            onset_ns=min(latest[rank].at_ns for rank in hanging),
            focus_ns=max(latest[rank].at_ns for rank in hanging),
            enable=("collectives of every rank: a Flight Recorder dump, or the probe (ingero trace)",),
            summary=(
                f"{plural(len(hanging), 'rank')} hang: {ranks_text(hanging)}.",
                "The flag does not say which of them the others wait for.",
                "Dump the Flight Recorder of all ranks, or run the probe, to see who has not entered.",
            ),
        ),
    )


def _is_quiet(evidence: Evidence) -> bool:
    """Whether the job fell silent long before the end of what was recorded, or inside of calls for unusually long."""
    calls = evidence.calls
    if not len(calls):
        return False
    opened = open_calls(evidence)
    newest_ns = max([evidence.newest_ns, *(sign.at_ns for sign in opened)])
    quiet_ns = newest_ns - int(max(calls.enter_ns.max(), calls.done_ns.max()))
    if opened:
        return quiet_ns > _LONG * _usual_ns(evidence)
    return quiet_ns > _QUIET * _usual_ns(evidence) > 0 and not _has_ended(evidence)


def _usual_ns(evidence: Evidence) -> float:
    """How long a rank rarely is without a collective: the 99th percentile of its gaps, the median over the ranks."""
    gaps = [np.diff(np.sort(evidence.calls.enter_ns[mine])) for mine in by_rank(evidence.calls.rank).values()]
    rare = [float(np.percentile(gap, 99)) for gap in gaps if len(gap)]
    return float(np.median(rare)) if rare else 0.0


def _has_ended(evidence: Evidence) -> bool:
    """Whether the process of every rank is known to have ended after its last collective."""
    last_ns = last_entries(evidence.calls)
    return bool(last_ns) and last_ns.keys() <= exits(evidence, last_ns).keys()


RULES: Final[tuple[Rule, ...]] = (mismatched, stopped, left_no_trace, all_entered)
