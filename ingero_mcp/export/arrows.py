"""Who waited for whom: from the entry of the last rank of a collective to each rank that waited for it.

A collective is known by its communicator and number, never by time. An arrow is drawn only where the wait is longer
than what the two clocks may be wrong by, and ends in a call of the waiting thread that was open at that moment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ingero_mcp.export.happenings import Clocks, Happening, clock_name
from ingero_mcp.export.tracks import Track
from ingero_mcp.semconv import UNKNOWN
from ingero_mcp.views.collectives import POINT_TO_POINT

LEAST_WAIT_NS: Final = 1_000_000
"""Shorter waits are no news: of any collective somebody comes last."""
_MOST_ENTRIES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A rank in a collective: its call, where that is drawn, and until when it is open."""

    call: Happening
    track: Track
    tid: int
    end_ns: int

    def open_at(self, time_ns: int) -> int | None:
        """The lane of the thread with a call around that time, its own collective first."""
        return self.tid if self.end_ns > time_ns else self.track.tid_open_at(time_ns)


@dataclass(frozen=True, slots=True)
class Arrow:
    """From one lane to another at one moment: when the last rank entered."""

    at_ns: int
    from_pid: int
    from_tid: int
    to_pid: int
    to_tid: int


def is_collective(call: Happening) -> bool:
    """Whether it is a call that all ranks of a communicator make together."""
    name = call.metric_name or ""
    return (
        call.source == "nccl"
        and call.comm_id is not None
        and call.coll_seq is not None
        and not name.startswith("nccl.")
        and name not in POINT_TO_POINT
    )


class Arrows:
    """Remembers who entered which collective until all of its ranks have; the oldest are forgotten when there are many.

    Where a rank is missing no arrow is drawn: nobody knows whether it was the last.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._entered: OrderedDict[tuple[object, ...], dict[object, Entry]] = OrderedDict()
        self._entries = 0

    def enter(self, entry: Entry, attached: bool) -> Iterator[Arrow]:
        """Take note of an entry; the arrows of the collective if it was the last. `attached`: its number counts from an
        arbitrary moment, so that only the step tells which calls belong together."""
        call = entry.call
        if call.nranks is None or (attached and call.step is None):
            return
        key: tuple[object, ...] = (call.cluster_id, call.job_id, call.comm_id, call.coll_seq, call.timing_source)
        key += (call.step, call.metric_name) if attached else ()
        who = call.rank if call.rank is not None else (call.node_id, call.pid)
        group = self._entered.setdefault(key, {})
        if who in group:
            # The communicator was begun anew, or a file holds everything twice.
            self._entries -= len(group)
            group.clear()
        group[who] = entry
        self._entries += 1
        if len(group) >= call.nranks:
            self._entries -= len(self._entered.pop(key))
            yield from self._drawn(entry, group)
        while self._entries > _MOST_ENTRIES:
            self._entries -= len(self._entered.popitem(last=False)[1])

    def _drawn(self, last: Entry, group: dict[object, Entry]) -> Iterator[Arrow]:
        at_ns = last.call.at_ns
        if last.end_ns <= at_ns:
            return
        for waiter in group.values():
            if waiter is last or at_ns - waiter.call.at_ns < self._least_wait_ns(waiter.call, last.call):
                continue
            tid = waiter.open_at(at_ns)
            if tid is not None:
                yield Arrow(at_ns, last.track.pid, last.tid, waiter.track.pid, tid)

    def _least_wait_ns(self, one: Happening, other: Happening) -> float:
        names = [clock_name(call.cluster_id, call.node_id, call.rank) for call in (one, other)]
        if names[0] == names[1] and names[0][1:] != (UNKNOWN, None):
            return LEAST_WAIT_NS
        clocks = [self._clocks.known.get(name) for name in names]
        bounds = [None if clock is None else clock.bound_ns for clock in clocks]
        known = [bound for bound in bounds if bound is not None]
        return max(LEAST_WAIT_NS, sum(known)) if len(known) == len(bounds) else float("inf")
