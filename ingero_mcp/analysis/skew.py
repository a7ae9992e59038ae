"""Skew: clocks that are apart look like lateness. Said where it would have misled."""

from __future__ import annotations

import numpy as np

from ingero_mcp.analysis.clocks import ClockFit
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import duration_text


def skewed(evidence: Evidence, clocks: ClockFit) -> Statement | None:
    """A statement if the clocks of two hosts are apart by more than twice the error bound of saying so, and visibly."""
    calls = evidence.calls
    if len(np.unique(calls.clock)) < 2:
        return None
    known = [one for one in clocks.offsets if np.isfinite(one.bound_ns)]
    if not known:
        return None
    latest = {one.clock: one for one in known}
    most = max(latest.values(), key=lambda one: abs(one.offset_ns))
    if abs(most.offset_ns) < 2 * most.bound_ns or most.clock == most.reference:
        return None
    raw = _disorder(evidence, None)
    if raw < 2 * _disorder(evidence, clocks):
        return None
    node, reference = _owner(evidence, most.clock), _owner(evidence, most.reference)
    return Statement(
        f"the clock of {node} is {duration_text(abs(most.offset_ns))} {'ahead of' if most.offset_ns > 0 else 'behind'} "
        f"that of {reference}, give or take {duration_text(most.bound_ns)}; corrected for it nobody is late",
        most.offset_ns / 1e6,
        "ms",
    )


def _owner(evidence: Evidence, clock: int) -> str:
    """Whose clock it is: the host's, or where hosts are not known the rank's."""
    ranks = np.unique(evidence.calls.rank[evidence.calls.clock == clock]).tolist()
    node = evidence.hosts.get(ranks[0]) if ranks else None
    return node or (f"rank {ranks[0]}" if ranks else "another host")


def _disorder(evidence: Evidence, clocks: ClockFit | None) -> float:
    """How far the ranks' entries into the same collective lie apart, in the median."""
    calls = evidence.calls
    enter = calls.enter_ns if clocks is None else clocks.corrected(calls.clock, calls.enter_ns)
    base = int(enter.min())
    size = int(calls.collective.max()) + 1
    first, last = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(first, calls.collective, (enter - base).astype(np.float64))
    np.maximum.at(last, calls.collective, (enter - base).astype(np.float64))
    apart = last - first
    return float(np.median(apart[np.isfinite(apart)]))
