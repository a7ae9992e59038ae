"""What the events say of a chain that an agent stored: its own words are kept, ours stand beside them."""

from __future__ import annotations

from ingero_mcp.analysis.chains.bursts import TAIL_RATIO
from ingero_mcp.analysis.chains.record import Record
from ingero_mcp.analysis.chains.stored import Stored
from ingero_mcp.analysis.chains.tail_latency import SYNCHRONIZES
from ingero_mcp.analysis.chains.weighted import middle, worst_tail
from ingero_mcp.analysis.words import duration_text, plural


def checked(one: Stored, record: Record | None) -> str | None:
    """A sentence about a stored chain of the tail of an operation; None for others."""
    if one.is_ours or one.kind != "tail_latency" or not one.op:
        return None
    calls = [] if record is None else [known for known in record.calls if known.op == one.op]
    if record is None or not calls:
        return f"cannot be checked: no call of {one.op} is among the events"
    p50_ns, p99_ns = middle(calls), worst_tail(calls)
    count = sum(one.count for one in calls)
    ratio = f", {p99_ns / p50_ns:.1f}x" if p50_ns else ""
    text = f"in the events: p99 {duration_text(p99_ns)} (worst minute), p50 {duration_text(p50_ns)}{ratio}, of {count}"
    if one.op in SYNCHRONIZES:
        return f"{text}; this call waits for the GPU, so that it may be long because the GPU had more to do"
    if p50_ns and p99_ns < TAIL_RATIO * p50_ns:
        return f"{text}; not confirmed: this is no long tail"
    slow = sum(slow.count for slow in record.slow if slow.op == one.op)
    if not slow:
        return f"{text}; not confirmed: every slow call is one of a cold start"
    lost_ns = sum(slow.excess_ns for slow in record.slow if slow.op == one.op)
    few = f"{plural(slow, 'slow call')} beside those of a cold start, {duration_text(lost_ns)} in all"
    return f"{text}; not confirmed: {few}, too few or too short to matter"
