"""Alignment: ranks that were met in the middle of a job count their collectives from an arbitrary one.

Such calls (`ingero.seq_origin` attach) cannot be joined by number. Where all of a communicator's calls say their step,
the n-th collective of a step is the same on all ranks. Else the sequence of kinds and sizes is shifted until it fits
that of the other ranks, if one shift fits and no other does. A rank that cannot be aligned is left out, and said to be.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.assemble import by_rank, numbered
from ingero_mcp.analysis.calls import UNKNOWN, Bools, Calls, Int64s
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.words import verb, who

_MOST_SHIFT: Final = 4096
_FITS: Final = 0.98
_LEAST: Final = 8  # calls that have to overlap
_LONGEST: Final = 1 << 16  # numbers of a rank that are looked at
_PROBES: Final = 32
_MISSING: Final = np.iinfo(np.int64).min


def aligned(evidence: Evidence) -> Evidence:
    """The evidence with calls of `attached` ranks numbered as their peers', or without them."""
    calls = evidence.calls
    if not evidence.attached or not len(calls):
        return evidence
    late: dict[str, set[int]] = defaultdict(set)
    for comm_id, rank in evidence.attached:
        late[comm_id].add(rank)
    seq = calls.seq.copy()
    keep = np.ones(len(calls), dtype=np.bool_)
    lost: set[int] = set()
    for number, rows in by_rank(calls.comm).items():
        comm_id = calls.comm_ids[number]
        if comm_id in late:
            lost |= _align(calls, rows, late[comm_id], seq, keep)
    shifted = replace(calls, seq=seq)
    shifted = replace(shifted, collective=numbered(shifted.comm, shifted.seq)).where(keep)
    notes = evidence.notes
    if lost:
        notes = (
            *notes,
            f"{who(lost)} {verb(lost, 'was', 'were')} met in the middle of the job and cannot be aligned with the "
            "others by the order of their collectives: unaligned, left out of comparisons",
        )
    return replace(evidence, calls=shifted, unaligned=frozenset(lost), notes=notes)


def _align(calls: Calls, mine: Int64s, late: set[int], seq: Int64s, keep: Bools) -> set[int]:
    """Number the calls of one communicator in place; returns the ranks that could not be."""
    mine = mine[np.argsort(calls.seq[mine], kind="stable")]
    rows = {rank: mine[places] for rank, places in by_rank(calls.rank[mine]).items()}
    if set(rows) <= late and (calls.step[mine] != UNKNOWN).all():
        _by_step(calls, mine, seq)
        return set()
    # Without a rank that was there from the beginning the one with most calls is the measure.
    sure = sorted(set(rows) - late)
    measure = sure[0] if sure else max(sorted(rows), key=lambda rank: len(rows[rank]))
    known, begin = _kinds(calls, rows[measure]), int(calls.seq[rows[measure][0]])
    lost = set()
    shifts: dict[bytes, int | None] = {}
    for rank in sorted(set(rows) & late - {measure}):
        kinds = _kinds(calls, rows[rank])
        # Ranks that were met at the same moment have the same to tell.
        if (told := kinds.tobytes()) not in shifts:
            shifts[told] = _shift(known, kinds)
        shift = shifts[told]
        if shift is None:
            keep[rows[rank]] = False
            lost.add(rank)
        else:
            seq[rows[rank]] = calls.seq[rows[rank]] - calls.seq[rows[rank][0]] + begin + shift
    return lost


def _by_step(calls: Calls, rows: Int64s, seq: Int64s) -> None:
    """The n-th collective of a step, with room for as many as any step has."""
    rows = rows[np.lexsort((calls.enter_ns[rows], calls.step[rows], calls.rank[rows]))]
    fresh = np.append(True, (np.diff(calls.rank[rows]) != 0) | (np.diff(calls.step[rows]) != 0))
    begin = np.maximum.accumulate(np.where(fresh, np.arange(len(rows)), 0))
    place = np.arange(len(rows)) - begin
    seq[rows] = calls.step[rows] * (place.max() + 1) + place


def _kinds(calls: Calls, rows: Int64s) -> Int64s:
    """What was called, by number from the first one on; those that were not recorded are missing."""
    place = calls.seq[rows] - calls.seq[rows[0]]
    inside = (place >= 0) & (place < _LONGEST)
    kinds = np.full(int(place[inside].max()) + 1, _MISSING)
    kinds[place[inside]] = calls.op[rows[inside]] * np.int64(1_000_003) + calls.bytes[rows[inside]]
    return kinds


def _shift(measure: Int64s, other: Int64s) -> int | None:
    """By how many collectives `other` begins after `measure`; None if no shift fits, or more than one does."""
    there = np.flatnonzero(other != _MISSING)
    probes = there[np.linspace(0, len(there) - 1, min(_PROBES, len(there))).astype(np.int64)]
    need = _overlap(measure, other)
    shifts = np.arange(max(need - len(other), -_MOST_SHIFT), min(len(measure) - need, _MOST_SHIFT) + 1)
    place = shifts[:, None] + probes
    inside = (place >= 0) & (place < len(measure))
    met = measure[np.where(inside, place, 0)]
    compared = inside & (met != _MISSING)
    alike = (compared & (met == other[probes])).sum(axis=1)
    # Most shifts are ruled out by a few calls; those that are left are looked at whole.
    fitting: list[int] = []
    for shift in shifts[alike >= 0.8 * np.maximum(compared.sum(axis=1), 1)].tolist():
        if _fits(measure, other, shift):
            fitting.append(shift)
        if len(fitting) > 1:
            return None
    return fitting[0] if fitting else None


def _fits(measure: Int64s, other: Int64s, shift: int) -> bool:
    first, end = max(shift, 0), min(len(measure), len(other) + shift)
    if end <= first:
        return False
    ours, theirs = measure[first:end], other[first - shift : end - shift]
    both = (ours != _MISSING) & (theirs != _MISSING)
    return bool(both.sum() >= _overlap(measure, other) and (ours == theirs)[both].mean() >= _FITS)


def _overlap(measure: Int64s, other: Int64s) -> int:
    """How many calls have to be compared."""
    return max(_LEAST, int(min((measure != _MISSING).sum(), (other != _MISSING).sum())) // 2)
