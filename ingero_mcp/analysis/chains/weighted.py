"""Figures of several minutes of calls together."""

from __future__ import annotations

from collections.abc import Iterable

from ingero_mcp.analysis.chains.record import Calls


def middle(calls: Iterable[Calls]) -> int:
    """The middle of the medians, each with the number of calls that it stands for; 0 of none."""
    ordered = sorted((one.p50_ns, one.count) for one in calls)
    half, reached = sum(count for _, count in ordered) / 2, 0
    for value, count in ordered:
        reached += count
        if reached >= half:
            return value
    return 0


def worst_tail(calls: Iterable[Calls]) -> int:
    """The longest 99th percentile; 0 of none."""
    return max((one.p99_ns for one in calls), default=0)
