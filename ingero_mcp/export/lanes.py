"""Spans of one thread side by side: within a lane they nest, and what only overlaps goes to the next lane."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

# Deep queues of a disk overlap some hundred times; beyond that a search for a nest is no longer worth its time.
_MOST_SEARCHED: Final = 128


class _Lane:
    """The time up to which spans were looked at, and ends of those still open then, the outermost first."""

    __slots__ = ("ends", "last_ns")

    def __init__(self, last_ns: int, end_ns: int) -> None:
        self.last_ns = last_ns
        self.ends = [end_ns]


class Lanes:
    """The lanes of one thread, numbered from 0. Spans should come in the order of their begin; one that comes late
    only takes another lane, so that begins never go back within one."""

    __slots__ = ("_free", "_lanes")

    def __init__(self) -> None:
        self._lanes: list[_Lane] = []
        self._free: list[tuple[int, int]] = []  # of lanes beyond those searched: idle from when on, and which

    def place(self, start_ns: int, end_ns: int) -> int:
        """The lane for a span: the first in which it lies within the one that is open, or after all."""
        for number, lane in enumerate(self._lanes[:_MOST_SEARCHED]):
            if start_ns < lane.last_ns:
                continue
            lane.last_ns = start_ns
            ends = lane.ends
            while ends and ends[-1] <= start_ns:
                ends.pop()
            if not ends or end_ns <= ends[-1]:
                ends.append(end_ns)
                return number
        return self._place_beyond(start_ns, end_ns)

    def open_at(self, time_ns: int) -> int | None:
        """A lane with a span that has begun by then and ends later; None without one."""
        for number, lane in enumerate(self._lanes):
            if lane.last_ns <= time_ns and lane.ends and lane.ends[0] > time_ns:
                return number
        return None

    def is_idle(self, time_ns: int) -> bool:
        """Whether nothing is open at that time or later."""
        return all(not lane.ends or lane.ends[0] <= time_ns for lane in self._lanes)

    def _place_beyond(self, start_ns: int, end_ns: int) -> int:
        if self._free and self._free[0][0] <= start_ns:
            _, number = heappop(self._free)
            lane = self._lanes[number]
            lane.last_ns, lane.ends = start_ns, [end_ns]
        else:
            number = len(self._lanes)
            self._lanes.append(_Lane(start_ns, end_ns))
        if number >= _MOST_SEARCHED:
            heappush(self._free, (end_ns, number))
        return number
