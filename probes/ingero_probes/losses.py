"""What was lost, as points that say how much, when and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Point

# Counts of the kernel side that mean an event is missing or incomplete; an exit without an entry is a call that had
# begun before us.
_MISSING: Final = ("ring_full", "threads_full", "counters_full", "abandoned_calls")


class Losses:
    """Turns running counts into gaps. `total` is how many events were lost so far."""

    def __init__(self, now_ns: int) -> None:
        self.total = 0
        self._counts: dict[str, int] = {}
        self._counted_ns = now_ns

    def gap(self, kernel: Mapping[str, int], not_sent: int, now_ns: int) -> Point | None:
        """A `probe.gap` for what was lost since the last time; None if nothing was."""
        counts = {reason: kernel[reason] for reason in _MISSING} | {"not_sent": not_sent}
        lost = {reason: count - self._counts.get(reason, 0) for reason, count in counts.items()}
        start_ns, self._counts, self._counted_ns = self._counted_ns, counts, now_ns
        self.total = sum(counts.values())
        if not any(lost.values()):
            return None
        attributes: dict[str, AttributeValue] = {
            semconv.LOST_EVENTS: sum(lost.values()),
            semconv.GAP_START_NS: start_ns,
            semconv.GAP_END_NS: now_ns,
        }
        attributes |= {f"probe.lost.{reason}": count for reason, count in lost.items() if count}
        return Point(semconv.PROBE_GAP, now_ns, attributes)
