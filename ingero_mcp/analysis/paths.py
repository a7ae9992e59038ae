"""Paths: the calls of each rank in each communicator, in the order of their numbers, and where they end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Bools, Calls, Int64s

_LEAST: Final = np.iinfo(np.int64).min
_MOST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class End:
    """The end of a path: its communicator and rank, the position of its last call, that of the first open one.

    A call is open if neither it nor a later one of the path is known to have ended.
    """

    comm: int
    rank: int
    last: int
    open: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Positions of calls in `order`, sorted by communicator, rank and number; `begin` is where each path begins in it.

    Only calls of the latest life of a communicator are on a path.
    """

    calls: Calls
    order: Int64s
    begin: Int64s

    @property
    def sizes(self) -> Int64s:
        """How many calls each path has."""
        return np.diff(np.append(self.begin, len(self.order)))

    def ends(self) -> list[End]:
        """Where each path ends."""
        if not len(self.order):
            return []
        calls = self.calls
        ended, seq = calls.done_ns[self.order] != UNKNOWN, calls.seq[self.order]
        last_ended = np.maximum.reduceat(np.where(ended, seq, _LEAST), self.begin)
        is_open = ~ended & (seq > np.repeat(last_ended, self.sizes))
        first = np.minimum.reduceat(np.where(is_open, np.arange(len(self.order)), _MOST), self.begin)
        opened = np.where(first == _MOST, UNKNOWN, self.order[np.minimum(first, len(self.order) - 1)])
        last = self.order[self.begin + self.sizes - 1]
        columns = (calls.comm[last], calls.rank[last], last, opened)
        return [
            End(comm, rank, place, None if first_open == UNKNOWN else first_open)
            for comm, rank, place, first_open in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def longest(self) -> dict[str, int]:
        """The most calls that a rank made, by communicator."""
        most = np.zeros(len(self.calls.comm_ids), dtype=np.int64)
        np.maximum.at(most, self.calls.comm[self.order[self.begin]], self.sizes)
        return dict(zip(self.calls.comm_ids, most.tolist(), strict=True))


def paths_of(calls: Calls) -> Paths:
    """The paths of the calls."""
    chosen = np.flatnonzero(latest_lives(calls))
    order = chosen[np.lexsort((calls.seq[chosen], calls.rank[chosen], calls.comm[chosen]))]
    comm, rank = calls.comm[order], calls.rank[order]
    fresh = (np.diff(comm) != 0) | (np.diff(rank) != 0)
    begin = np.flatnonzero(np.append(True, fresh)) if len(order) else np.zeros(0, dtype=np.int64)
    return Paths(calls, order, begin)


def latest_lives(calls: Calls) -> Bools:
    """Which calls are of the latest life of their communicator: a job that is restarted begins its ones anew."""
    latest = dict(zip(calls.comm_ids, range(len(calls.comm_ids)), strict=True))
    is_latest = np.zeros(len(calls.comm_ids), dtype=np.bool_)
    is_latest[list(latest.values())] = True
    return np.asarray(is_latest[calls.comm])


def last_entries(calls: Calls) -> dict[int, int]:
    """When each rank entered its last call."""
    places = last_places(calls)
    return dict(zip(calls.rank[places].tolist(), calls.enter_ns[places].tolist(), strict=True))


def last_places(calls: Calls) -> Int64s:
    """The position of the last call of each rank, by time."""
    order = np.lexsort((calls.enter_ns, calls.rank))
    rank = calls.rank[order]
    return np.asarray(order[np.append(np.diff(rank) != 0, True)] if len(order) else order)
