"""Steps: which training step each call belongs to, and how long every step took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Calls, Floats, Int64s
from ingero_mcp.analysis.distinct import distinct, distinct_and_place

_MOST_PERIOD: Final = 1024
_MOST_RHYTHM: Final = 64
_ALIKE: Final = 0.98  # share of collectives that must be of the kind that is usual at their place in a step
_NOW_AND_THEN: Final = 16  # a communicator with so many times fewer calls than another is not used in every step
_ROUNDS: Final = 3  # so often a period must be seen to be one
_ENOUGH: Final = 8192  # collectives, to find a period in


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The steps of a job.

    `numbers[i]` is what the job calls step i, `of_call` is i of each call (-1: of no step). `duration_ns[i]` is how
    long step i took: the median over the ranks of the time from the end of the step before, each on its own clock (NaN
    for the first). `source` says where the boundaries come from: events that name their step, a period in the sequence
    of collectives, or each collective of the largest communicator for itself.
    """

    numbers: Int64s
    of_call: Int64s
    duration_ns: Floats
    end_ns: Int64s
    source: Literal["named", "period", "collective"]

    def __len__(self) -> int:
        return len(self.numbers)


def find_steps(calls: Calls) -> Steps:
    """The steps of the calls: as the events name them, else by the period of the collectives."""
    named = calls.step != UNKNOWN
    if len(calls) and named.mean() >= 0.5:
        return _timed(calls, calls.step, "named")
    label, period = _labels(calls)
    return _timed(calls, label, "period" if period > 1 else "collective")


def _timed(calls: Calls, label: Int64s, source: Literal["named", "period", "collective"]) -> Steps:
    known = label != UNKNOWN
    if known.all():
        numbers, of_call = distinct_and_place(label)
    else:
        of_call = np.full(len(label), UNKNOWN)
        numbers, of_call[known] = distinct_and_place(label[known])
    end_ns, duration_ns = _durations(calls, of_call, len(numbers))
    return Steps(numbers, of_call, duration_ns, end_ns, source)


def _durations(calls: Calls, of_call: Int64s, steps: int) -> tuple[Int64s, Floats]:
    """When each step ended (on the clock of the rank that ended it last), and how long it took."""
    if not steps:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    ranks, column = distinct_and_place(calls.rank)
    end = np.where(calls.done_ns != UNKNOWN, calls.done_ns, calls.enter_ns)
    base = int(end.min())
    last = np.full(steps * len(ranks), -1, dtype=np.int64)
    in_step = of_call != UNKNOWN
    place = of_call * len(ranks) + column
    if in_step.all():
        np.maximum.at(last, place, end - base)
    else:
        np.maximum.at(last, place[in_step], end[in_step] - base)
    ended = last.reshape(steps, len(ranks))
    duration = np.full(steps, np.nan)
    if steps > 1 and (ended >= 0).all():
        duration[1:] = np.median(np.diff(ended, axis=0), axis=1)
    elif steps > 1:
        length = np.diff(np.where(ended >= 0, ended, np.nan), axis=0)
        some = ~np.isnan(length).all(axis=1)
        duration[1:][some] = np.nanmedian(length[some], axis=1)
    return ended.max(axis=1) + base, duration


def _labels(calls: Calls) -> tuple[Int64s, int]:
    """A step for each call from the period of the collectives, and that period.

    The largest communicator of each rank sets the beat; the other calls of the rank fall into the step of its next
    beat, since a step ends with the exchange that all share.
    """
    label = np.full(len(calls), UNKNOWN, dtype=np.int64)
    if not len(calls):
        return label, 1
    ranks, place = distinct_and_place(calls.rank)
    main = _main_communicator(calls, place)
    beat = main[place] == calls.comm
    period = _period(calls, np.flatnonzero(calls.comm == main[0]), has_more=not beat.all())
    label[beat] = calls.seq[beat] // period
    if beat.all():
        return label, period
    order = np.argsort(place, kind="stable")
    for mine in np.split(order, np.searchsorted(place[order], np.arange(1, len(ranks)))):
        beats = mine[beat[mine]]
        others = mine[~beat[mine]]
        if len(beats) and len(others):
            beats = beats[np.argsort(calls.enter_ns[beats], kind="stable")]
            following = np.searchsorted(calls.enter_ns[beats], calls.enter_ns[others], side="left")
            inside = following < len(beats)
            label[others[inside]] = label[beats[following[inside]]]
    return label, period


def _main_communicator(calls: Calls, place: Int64s) -> Int64s:
    """For each rank, in order, the communicator with the most ranks, of those the one with the fewest calls.

    One with far fewer calls than others of its size does not mark steps, it is used now and then.
    """
    comms = int(calls.comm.max()) + 1
    count = np.bincount(place * comms + calls.comm, minlength=(int(place.max()) + 1) * comms).reshape(-1, comms)
    members = np.where(count > 0, (count > 0).sum(axis=0), 0)
    # By what the rank that lost least has of it, so that ranks choose the same of two that are alike.
    most = np.where(members == members.max(axis=1, keepdims=True), count.max(axis=0), 0)
    is_used = most * _NOW_AND_THEN >= most.max(axis=1, keepdims=True)
    return np.asarray(np.where(is_used, most, np.iinfo(np.int64).max).argmin(axis=1), dtype=np.int64)


def _period(calls: Calls, rows: Int64s, *, has_more: bool) -> int:
    """After how many collectives of a communicator its kinds and sizes repeat, or the times between; 1 if they do not.

    What one rank's events lack others have; what was not recorded at all leaves a hole in the sequence.
    """
    lowest = int(calls.seq[rows].min())
    rows = rows[calls.seq[rows] < lowest + _ENOUGH]
    seqs, first = np.unique(calls.seq[rows], return_index=True)
    kinds = calls.op[rows[first]] * np.int64(1_000_003) + calls.bytes[rows[first]]
    kind = np.unique(kinds, return_inverse=True)[1]
    if len(seqs) < 4:
        return 1
    if not kind.any():
        # Where every step has calls in other communicators too, the one that all share ends it.
        return 1 if has_more else _rhythm(_between(calls, rows, lowest, int(seqs[-1]) - lowest))
    different = int(kind.max()) + 1
    for period in range(2, min(_MOST_PERIOD, len(seqs) // _ROUNDS) + 1):
        count = np.bincount(seqs % period * different + kind, minlength=period * different)
        if count.reshape(period, different).max(axis=1).sum() >= _ALIKE * len(seqs):
            return period
    return 1


def _between(calls: Calls, rows: Int64s, lowest: int, length: int) -> Floats:
    """The time from each collective to the next, of the ranks that saw both the median; NaN where none did."""
    entered = np.full((8, length + 1), np.nan)
    ranks = distinct(calls.rank[rows])[:8]
    for place, rank in enumerate(ranks.tolist()):
        mine = rows[calls.rank[rows] == rank]
        entered[place, calls.seq[mine] - lowest] = calls.enter_ns[mine] - calls.enter_ns[mine].min()
    between = np.diff(entered, axis=1)
    some = np.isfinite(between).any(axis=0)
    found = np.full(length, np.nan)
    found[some] = np.nanmedian(between[:, some], axis=0)
    return found


def _rhythm(between_ns: Floats) -> int:
    """The period of the times between equal collectives; 1 if every one is like the others.

    Ranks of times are compared, so that a few long ones do not decide; a period has to explain most of the variance.
    """
    known = np.isfinite(between_ns)
    longest = min(_MOST_RHYTHM, int(known.sum()) // 4)
    if longest < 2:
        return 1
    order = np.zeros(len(between_ns))
    order[known] = np.argsort(np.argsort(between_ns[known], kind="stable"), kind="stable")
    order[known] -= order[known].mean()
    power = float((order[known] ** 2).mean())
    likeness = [
        float((order[lag:] * order[:-lag]).sum()) / max(int((known[lag:] & known[:-lag]).sum()), 1) / power
        for lag in range(1, longest + 1)
    ]
    best = max(likeness[1:])
    if best < 0.5 or best < likeness[0] + 0.2:
        return 1
    return next(lag for lag in range(2, longest + 1) if likeness[lag - 1] >= 0.9 * best)
