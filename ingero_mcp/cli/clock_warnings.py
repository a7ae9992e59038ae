"""Telling that clocks of nodes are apart, by readings that have a bound; never by when somebody began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ingero_mcp.clocks import NodeClock

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Apart:
    """The clock of `node` is ahead of that of `other` by `offset_ns` (behind if negative), within `bound_ns`."""

    node: str
    other: str
    offset_ns: int
    bound_ns: int

    def __str__(self) -> str:
        direction = "ahead of" if self.offset_ns > 0 else "behind"
        offset, bound = _in_ms(abs(self.offset_ns)), _in_ms(self.bound_ns)
        return f"WARNING: {self.node} is ~{offset}ms {direction} {self.other} (bound: {bound}ms)"


def apart(clocks: Sequence[NodeClock], threshold_ns: int) -> list[Apart]:
    """Clocks that are surely apart, and by more than the threshold: each against the one in the middle."""
    groups: dict[tuple[str, str], dict[str, NodeClock]] = defaultdict(dict)
    for clock in clocks:
        if clock.bound_ns is not None:
            group, name = groups[clock.cluster_id, clock.reference], _name(clock)
            if name not in group or clock.bound_ns < (group[name].bound_ns or 0):
                group[name] = clock
    return [one for _, group in sorted(groups.items()) for one in _of_group(group, threshold_ns)]


def _of_group(group: dict[str, NodeClock], threshold_ns: int) -> Iterator[Apart]:
    middle = median(clock.offset_ns for clock in group.values())
    other = min(group, key=lambda name: (abs(group[name].offset_ns - middle), name))
    for name in sorted(group):
        offset_ns = group[name].offset_ns - group[other].offset_ns
        bound_ns = (group[name].bound_ns or 0) + (group[other].bound_ns or 0)
        if abs(offset_ns) > max(threshold_ns, bound_ns):
            yield Apart(name, other, offset_ns, bound_ns)


def _name(clock: NodeClock) -> str:
    return clock.node_id if clock.rank is None else f"rank {clock.rank}"


def _in_ms(ns: int) -> str:
    return f"{ns / _MS:.0f}" if ns >= 10 * _MS else f"{ns / _MS:.2g}"
