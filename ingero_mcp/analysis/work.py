"""Own work: how long each rank was busy with its own work in each step, whatever it waited for.

Lateness at a collective does not tell who is at fault: with pipeline parallelism a slow rank makes other stages late.
What a rank did itself does. It is taken from the best source that most ranks have, and none of them compares clocks:

1. what the calling thread did between collectives, as the probe measured it (on CPU, blocked, waiting for a CPU);
2. with GPU timing, the time outside of the collectives, sends and receives that computing waits for;
3. computing that was recorded as such (`compute` spans), where communication was not;
4. with GPU timing and gaps in the recording, by how much shorter than its peers' a rank's kernel ran: the last to
   enter waits least;
5. with host timing only, the time between collectives outside of synchronize calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Bools, Calls, Floats, Int64s
from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.evidence import Evidence, Matrix, Work
from ingero_mcp.analysis.gpu_work import outside_of_waits
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.whole import is_sampled

_MOST: Final = 0.5  # a source is used if more than this share of the cells is filled

COMPUTING: Final = "its own computing"
"""What a table measures that was recorded as computing."""

LATENESS: Final = "how much less than its peers it waited in the same collectives"
"""What a table measures that is not work, but how late it made its rank."""

Source: TypeAlias = Callable[[Evidence, Steps, Roles], Matrix | None]


def own_work(evidence: Evidence, steps: Steps, roles: Roles) -> Matrix | None:
    """Own work in nanoseconds per step and rank; None if no source says it."""
    return next(
        (matrix for matrix in (source(evidence, steps, roles) for source in SOURCES) if _is_filled(matrix)), None
    )


def computing(evidence: Evidence, steps: Steps) -> Matrix | None:
    """Recorded computing per step and rank, which is the GPUs' own work and nothing else; None if none was recorded."""
    matrix = _computing(evidence, steps, None)
    return matrix if _is_filled(matrix) else None


def _is_filled(matrix: Matrix | None) -> bool:
    return matrix is not None and bool(np.isfinite(matrix.values).mean() > _MOST)


def _computing(evidence: Evidence, steps: Steps, _roles: Roles | None) -> Matrix | None:
    work = evidence.work
    if work is None or not len(work.rank):
        return None
    step = work.step if (work.step != UNKNOWN).any() else _step_of_work(work, evidence.calls, steps)
    own = ~work.is_wait & (step != UNKNOWN)
    if not own.any():
        return None
    numbers, ranks = np.unique(step[own]), np.unique(work.rank[own])
    values = np.full((len(numbers), len(ranks)), np.nan)
    place = np.searchsorted(numbers, step[own]), np.searchsorted(ranks, work.rank[own])
    values[place] = 0.0
    np.add.at(values, place, (work.end_ns - work.start_ns)[own].astype(np.float64))
    return Matrix(values, numbers, ranks, COMPUTING, is_gpu_work=True)


def _step_of_work(work: Work, calls: Calls, steps: Steps) -> Int64s:
    """The number of the step in which a rank computed, where only its collectives tell: the one that ends next."""
    found = np.full(len(work.rank), UNKNOWN)
    for rank in distinct(work.rank).tolist():
        mine = np.flatnonzero((calls.rank == rank) & (steps.of_call != UNKNOWN) & (calls.done_ns != UNKNOWN))
        own = np.flatnonzero(work.rank == rank)
        ended = np.full(len(steps), np.iinfo(np.int64).min)
        np.maximum.at(ended, steps.of_call[mine], calls.done_ns[mine])
        place = np.searchsorted(np.maximum.accumulate(ended), work.start_ns[own], side="right")
        # What is before the first end is part of a step whose begin was not recorded; after the last one, of none.
        inside = (place > 0) & (place < len(steps))
        found[own[inside]] = steps.numbers[place[inside]]
    return found


def _thread_time(evidence: Evidence, steps: Steps, _roles: Roles) -> Matrix | None:
    calls = evidence.calls
    ranks = distinct(calls.rank)
    known = (calls.own_ns != UNKNOWN) & (steps.of_call != UNKNOWN)
    if not known.any():
        return None
    values = _summed(calls, steps, ranks, calls.own_ns.astype(np.float64), known)
    return Matrix(values, steps.numbers, ranks, "what its thread did itself between collectives")


def lateness(calls: Calls, known: Bools) -> Floats:
    """By how much less than the longest of its peers each call waited: how late it was, without comparing clocks."""
    longest = np.zeros(int(calls.collective.max()) + 1)
    np.maximum.at(longest, calls.collective[known], calls.wait_ns[known].astype(np.float64))
    return np.asarray(longest[calls.collective] - calls.wait_ns)


def _shortness(evidence: Evidence, steps: Steps, _roles: Roles) -> Matrix | None:
    calls = evidence.calls
    ranks = distinct(calls.rank)
    known = (calls.wait_ns != UNKNOWN) & (steps.of_call != UNKNOWN)
    if evidence.timing != "kernel_gpu" or not known.any():
        return None
    values = _summed(calls, steps, ranks, lateness(calls, known), known)
    # Of a sample of the collectives not every step has one.
    seen = np.isfinite(values).any(axis=1) if is_sampled(calls) else np.ones(len(steps), dtype=np.bool_)
    return Matrix(values[seen], steps.numbers[seen], ranks, LATENESS)


def _between(evidence: Evidence, steps: Steps, _roles: Roles) -> Matrix | None:
    calls = evidence.calls
    ranks = distinct(calls.rank)
    if evidence.timing != "host_api" or is_sampled(calls):
        return None
    own_ns = np.full(len(calls), np.nan)
    order = np.lexsort((calls.enter_ns, calls.rank))
    same = np.diff(calls.rank[order]) == 0
    since = np.where(calls.done_ns != UNKNOWN, calls.done_ns, calls.enter_ns)[order[:-1]][same]
    later = order[1:][same]
    own_ns[later] = np.maximum(calls.enter_ns[later] - since, 0)
    if (calls.done_ns != UNKNOWN).mean() < _MOST / 10:
        return None  # without synchronize calls the time between two collectives is mostly waiting
    known = np.isfinite(own_ns) & (steps.of_call != UNKNOWN)
    values = _summed(calls, steps, ranks, own_ns, known)
    return Matrix(values, steps.numbers, ranks, "its time between collectives outside of synchronize calls")


SOURCES: Final[tuple[Source, ...]] = (_thread_time, outside_of_waits, _computing, _shortness, _between)


def _summed(calls: Calls, steps: Steps, ranks: Int64s, amount: Floats, known: Bools) -> Floats:
    """The amounts per step and rank; NaN where calls of the rank are missing that it has in other steps."""
    rows = slice(None) if known.all() else known
    place = steps.of_call[rows] * len(ranks) + np.searchsorted(ranks, calls.rank[rows])
    shape = len(steps), len(ranks)
    values = np.asarray(np.bincount(place, weights=amount[rows], minlength=shape[0] * shape[1]), dtype=np.float64)
    values = values.reshape(shape)
    count = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
    values[(count < np.median(count, axis=0, keepdims=True)) | (count == 0)] = np.nan
    return values
