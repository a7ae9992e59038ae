"""Own work from GPU timing: what a rank did between the ends of steps, less the communication that it waited in.

Where computing waits for a collective (tensor parallel, pipeline), the time inside is not own work. Gradient buckets
are sent while others are still computed: a rank that is late for one stays late for the next, and nothing is to be
taken off. There a rank's work up to each bucket is compared with its peers', and the largest difference counts, since
the last buckets queue behind each other and hide it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Bools, Calls, Floats, Int64s
from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.evidence import Evidence, Matrix, Work
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.whole import is_sampled

QUEUED_NS: Final = 50_000
"""Kernels that begin within so short a time one after the other were queued: launching one takes a few microseconds."""

_STEADIER: Final = 0.7
_FEW: Final = 16
_ENOUGH: Final = 200  # steps


def outside_of_waits(evidence: Evidence, steps: Steps, roles: Roles) -> Matrix | None:
    """Own work in nanoseconds per step and rank; None without GPU timing, or if part of the collectives is missing."""
    values = _measured(evidence, steps, roles, evidence.work, without_computing=False)
    if values is None:
        return None
    ranks = distinct(evidence.calls.rank)
    return Matrix(values, steps.numbers, ranks, "its time outside of collectives, sends and receives", is_gpu_work=True)


def outside_of_all(evidence: Evidence, steps: Steps, roles: Roles) -> Matrix | None:
    """The part of `outside_of_waits` in which no computing was recorded: the GPU had nothing to do, the host was late.

    It varies less than the whole, as batches differ and hosts hardly do. None where computing was not recorded.
    """
    if evidence.work is None or not len(evidence.work.rank):
        return None
    values = _measured(evidence, steps, roles, evidence.work, without_computing=True)
    if values is None:
        return None
    return Matrix(values, steps.numbers, distinct(evidence.calls.rank), "its time without computing or communication")


def _measured(
    evidence: Evidence, steps: Steps, roles: Roles, work: Work | None, *, without_computing: bool
) -> Floats | None:
    calls = evidence.calls
    if evidence.timing != "kernel_gpu" or not len(calls) or is_sampled(calls):
        return None
    ranks = distinct(calls.rank)
    laid = _laid_out(calls, steps, ranks)
    sends = _by_column(np.searchsorted(ranks, evidence.sends.calls.rank), len(ranks))
    values = np.full((len(steps), len(ranks)), np.nan)
    for role in roles.all:
        mine = [
            place
            for place, rank in enumerate(ranks.tolist())
            if roles.of_rank.get(rank) == role and laid[place].shape[1]
        ]
        places = min((laid[place].shape[1] for place in mine), default=0)
        if places:
            # Of ranks that differ in their number of calls only the last ones are compared.
            same = [laid[place][:, -places:] for place in mine]
            beside = _beside(calls, same)
            own = [
                _own_until(evidence, _busy(work, int(ranks[place])), rows, sends[place], beside)
                for place, rows in zip(mine, same, strict=True)
            ]
            values[:, mine] = _largest_difference([one.without_busy() if without_computing else one for one in own])
    return values


def _by_column(column: Int64s, columns: int) -> list[Int64s]:
    """The positions of each column's elements."""
    order = np.argsort(column, kind="stable")
    return np.split(order, np.searchsorted(column[order], np.arange(1, columns)))


def _laid_out(calls: Calls, steps: Steps, ranks: Int64s) -> list[Int64s]:
    """For each rank its calls `[step, place]` in order of time; -1 in steps in which it has not as many as usual."""
    known = np.flatnonzero((calls.done_ns != UNKNOWN) & (steps.of_call != UNKNOWN))
    found = []
    for of_rank in _by_column(np.searchsorted(ranks, calls.rank[known]), len(ranks)):
        mine = known[of_rank]
        mine = mine[np.lexsort((calls.enter_ns[mine], steps.of_call[mine]))]
        count = np.bincount(steps.of_call[mine], minlength=len(steps))
        usual = int(np.median(count[count > 0])) if len(mine) else 0
        rows = np.full((len(steps), usual), -1)
        whole = count == usual
        rows[whole] = mine[whole[steps.of_call[mine]]].reshape(-1, usual)
        found.append(rows)
    return found


def _beside(calls: Calls, same: list[Int64s]) -> Bools:
    """Which calls of a step computing does not wait for, by their place among the calls of the step.

    Where it waits, what is steady is the time from the end of a call to the entry into the next; where it does not, the
    time from entry to entry is, however long the rank was inside.
    """
    apart = []
    for rows in same:
        whole = rows[rows[:, 0] >= 0][:_ENOUGH]
        if len(whole) >= _FEW:
            enter, done = calls.enter_ns[whole], calls.done_ns[whole]
            apart.append([_unsteadiness(enter[:, 1:] - since[:, :-1]) for since in (enter, done)])
    if not apart:
        return np.zeros(same[0].shape[1], dtype=np.bool_)
    from_entry, from_end = np.median(np.array(apart), axis=0)
    # The last call of a step ends it: everybody waits for it.
    return np.append(from_entry < _STEADIER * from_end, False)


def _unsteadiness(times: Int64s) -> Floats:
    """The median distance of each column from its median."""
    return np.asarray(np.median(np.abs(times - np.median(times, axis=0)), axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class _Own:
    """Own work of a rank until some moments of the step, `until[step, moment]`; the last is the end of the step.

    `held[step, moment]` says that the rank was queued just before behind a collective that it did not wait for, so that
    the moment is as late as others made it. `busy` is how much of the work was recorded as computing.
    """

    until: Floats
    held: Bools
    busy: Floats

    def without_busy(self) -> _Own:
        """What else it did."""
        return replace(self, until=np.maximum(self.until - self.busy, 0))


def _largest_difference(own: list[_Own]) -> Floats:
    """The typical work at the last moment, and each rank's largest difference at a moment when nothing held it up."""
    until, held = np.stack([one.until for one in own], axis=1), np.stack([one.held for one in own], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        usual = np.nanmedian(until, axis=1, keepdims=True)
        apart = np.nanmax(np.where(held, np.nan, until - usual), axis=2)
        return np.asarray(usual[:, :, -1] + apart)


def _own_until(evidence: Evidence, busy: Intervals, rows: Int64s, other: Int64s, beside: Bools) -> _Own:
    """Own work of a rank up to each bucket that it does not wait for, and up to the step's end.

    `rows` are its calls by step and place, `other` the positions of its sends and receives, `busy` when it computed.
    """
    calls, sends = evidence.calls, evidence.sends.calls
    other = other[sends.done_ns[other] != UNKNOWN]
    whole = rows[:, 0] >= 0
    enter, done = np.where(rows >= 0, calls.enter_ns[rows], UNKNOWN), np.where(rows >= 0, calls.done_ns[rows], UNKNOWN)
    last_done = done.max(axis=1)
    whole &= _has_all(sends.enter_ns[other], last_done)
    both = np.flatnonzero(whole[1:] & whole[:-1]) + 1
    waits = rows[whole][:, ~beside].reshape(-1)
    waiting = Intervals(
        np.concatenate([calls.enter_ns[waits], sends.enter_ns[other]]),
        np.concatenate([calls.done_ns[waits], sends.done_ns[other]]),
    )
    either = waiting.and_(busy)
    moments = np.append(np.flatnonzero(beside), rows.shape[1] - 1)
    begin, end = last_done[both - 1][:, None], enter[both][:, moments]
    computed = busy.covered_ns(end) - busy.covered_ns(begin)
    waited = either.covered_ns(end) - either.covered_ns(begin) - computed
    until = np.full((len(rows), len(moments)), np.nan)
    until[both] = np.maximum(end - begin - waited, 0)
    busy_until = np.zeros(until.shape)
    busy_until[both] = computed
    held = np.zeros(until.shape, dtype=np.bool_)
    queued = enter[both][:, 1:] - done[both][:, :-1] < QUEUED_NS
    for moment, place in enumerate(moments.tolist()):
        # The first call after a bucket, which is a bucket too, or what the end of the step waits for.
        after = int(moments[moment - 1]) if moment else -1
        if 0 <= after < place:
            held[both, moment] = queued[:, after]
    return _Own(until, held, busy_until)


def _has_all(enter_ns: Int64s, last_done: Int64s) -> Bools:
    """In which steps none of a rank's sends and receives are missing, by the ends of the steps."""
    if not len(enter_ns):
        return np.ones(len(last_done), dtype=np.bool_)
    until = np.searchsorted(np.sort(enter_ns), np.maximum.accumulate(last_done))
    count = np.diff(until, prepend=0)
    return np.asarray(count >= np.median(count[count > 0]) if count.any() else np.ones(len(count), dtype=np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Intervals of time, which may overlap, as parallel arrays."""

    enter_ns: Int64s
    done_ns: Int64s

    def and_(self, other: Intervals) -> Intervals:
        """The intervals of both."""
        return Intervals(np.concatenate([self.enter_ns, other.enter_ns]), np.concatenate([self.done_ns, other.done_ns]))

    def covered_ns(self, until_ns: Int64s) -> Int64s:
        """How much time before each of some moments lies inside of an interval."""
        if not len(self.enter_ns):
            return np.zeros(until_ns.shape, dtype=np.int64)
        order = np.argsort(self.enter_ns, kind="stable")
        enter, done = self.enter_ns[order], np.maximum.accumulate(self.done_ns[order])
        before = np.concatenate([[enter[0]], done[:-1]])
        total = np.cumsum(np.maximum(done - np.maximum(enter, before), 0))
        place = np.searchsorted(enter, until_ns, side="right") - 1
        covered = total[place] - np.maximum(done[place] - until_ns, 0)
        return np.asarray(np.where(place >= 0, np.maximum(covered, 0), 0))


def _busy(work: Work | None, rank: int) -> Intervals:
    """When a rank computed, whatever was sent beside it."""
    if work is None:
        return Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    mine = (work.rank == rank) & ~work.is_wait
    return Intervals(work.start_ns[mine], work.end_ns[mine])
