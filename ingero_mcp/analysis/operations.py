"""Operations: what the ranks of a job did in each step, and what waited for what, as a graph that can be run again.

Computing goes on after the computing before it and after what it receives, a receive ends after its send began, a
collective after the last of its ranks came. What waits for what is read off the recording: of each kind the latest
operation of the rank that had ended when this one began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Bools, Floats, Int64s
from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.evidence import Evidence

COMPUTE, WAIT, _SEND, _RECEIVE, _COLLECTIVE = range(5)
_KINDS: Final = 5
_MOST_OPS: Final = 1_000_000
_ROUNDS: Final = 10_000
_AT_ONCE_NS: Final = 2_000  # an operation that ended so shortly after another began may have let it begin


@dataclass(frozen=True, slots=True, eq=False)
class Ops:
    """Operations as parallel arrays; `step` is a place, `group` joins the ends of a transfer (-1: none)."""

    rank: Int64s
    step: Int64s
    kind: Int64s
    start_ns: Int64s
    end_ns: Int64s
    group: Int64s

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """All operations whose step is known. `numbers` are those of the steps, `begin_ns` and `last_ns` their ends.

    `before` holds for each kind the operation that each one waits for; `took_ns` and `pause_ns` are how long each took,
    and how long after the last thing that it waited for a computation began. `order` are the computations by rank, step
    and time, `place` is the place of each of them in its step.
    """

    numbers: Int64s
    ops: Ops
    before: list[Int64s]
    begin_ns: Int64s
    last_ns: Int64s
    took_ns: Floats
    pause_ns: Floats
    order: Int64s
    place: Int64s

    @property
    def is_first(self) -> Bools:
        """Which operations wait for nothing in their step."""
        return np.asarray(np.all([one < 0 for one in self.before], axis=0))

    def in_order(self, chosen: Bools) -> tuple[Int64s, Int64s]:
        """Some operations by rank, step and time, and the place of each among those of its rank in its step."""
        return _in_order(self.ops, chosen)

    @property
    def since_begin_ns(self) -> Floats:
        """How long after the begin of its step each operation began that waits for nothing in it; 0 for the others."""
        return np.where(self.is_first, self.ops.start_ns - self.begin_ns[self.ops.step], 0).astype(np.float64)

    def run(self, took_ns: Floats, pause_ns: Floats, since_begin_ns: Floats | None = None) -> Floats:
        """How long each step takes with these durations, pauses, and times at which it begins."""
        # What waits for nothing in its step begins when it did.
        first_ns = self.since_begin_ns if since_begin_ns is None else since_begin_ns
        return _run(self.ops, self.before, took_ns, pause_ns + first_ns, len(self.numbers))


def operations(evidence: Evidence) -> Operations | None:
    """The operations of a job; None where computing or its steps were not recorded, or there are too many."""
    numbers, ops = _ops(evidence)
    if not len(ops) or len(ops) > _MOST_OPS or not (ops.kind == COMPUTE).any():
        return None
    before = [_latest_before(ops, kind) for kind in range(_KINDS)]
    order, place = _in_order(ops, ops.kind == COMPUTE)
    # A GPU computes one thing after the other, whatever the recorded lengths say.
    before.append(_computed_before(ops, order, place))
    begin_ns = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(begin_ns, ops.step, ops.start_ns)
    last_ns = np.full(len(numbers), np.iinfo(np.int64).min)
    np.maximum.at(last_ns, ops.step, ops.end_ns)
    took_ns = (ops.end_ns - ops.start_ns).astype(np.float64)
    return Operations(numbers, ops, before, begin_ns, last_ns, took_ns, _pauses(ops, before), order, place)


def _ops(evidence: Evidence) -> tuple[Int64s, Ops]:
    """Everything whose step is known, and the numbers of the steps."""
    work, sends, calls = evidence.work, evidence.sends, evidence.calls
    if work is None:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, Ops(*(nothing for _ in range(6)))
    sent = sends.calls
    pairs = int(sent.collective.max()) + 1 if len(sent) else 0
    parts = [
        (work.rank, work.step, np.where(work.is_wait, WAIT, COMPUTE), work.start_ns, work.end_ns, None),
        (sent.rank, sent.step, np.where(sends.is_send == 1, _SEND, _RECEIVE), sent.enter_ns, sent.done_ns, 0),
        (calls.rank, calls.step, np.full(len(calls), _COLLECTIVE), calls.enter_ns, calls.done_ns, pairs),
    ]
    groups = (None, sent.collective, calls.collective)
    joined = [np.concatenate([np.asarray(part[place]) for part in parts]) for place in range(5)]
    group = np.concatenate(
        [
            np.full(len(part[0]), UNKNOWN) if own is None else own + (part[5] or 0)
            for part, own in zip(parts, groups, strict=True)
        ]
    )
    rank, step, kind, start, end = joined
    known = (step != UNKNOWN) & (end != UNKNOWN)
    numbers, place = np.unique(step[known], return_inverse=True)
    return numbers, Ops(rank[known], place.ravel(), kind[known], start[known], end[known], group[known])


def _latest_before(ops: Ops, kind: int) -> Int64s:
    """For each operation the latest of a kind on its rank, in its step, that had ended when it began; -1 if none."""
    found = np.full(len(ops), UNKNOWN)
    for rank in distinct(ops.rank).tolist():
        mine = np.flatnonzero(ops.rank == rank)
        of_kind = mine[ops.kind[mine] == kind]
        if not len(of_kind):
            continue
        of_kind = of_kind[np.argsort(ops.end_ns[of_kind], kind="stable")]
        place = np.searchsorted(ops.end_ns[of_kind], ops.start_ns[mine] + _AT_ONCE_NS, side="right") - 1
        # One that takes no time has ended when it began, but does not wait for itself.
        place = np.where((place >= 0) & (of_kind[np.maximum(place, 0)] == mine), place - 1, place)
        latest = of_kind[np.maximum(place, 0)]
        found[mine] = np.where((place >= 0) & (ops.step[latest] == ops.step[mine]), latest, UNKNOWN)
    return found


def _in_order(ops: Ops, chosen: Bools) -> tuple[Int64s, Int64s]:
    found = np.flatnonzero(chosen)
    order = found[np.lexsort((ops.start_ns[found], ops.step[found], ops.rank[found]))]
    key = ops.rank[order] * (int(ops.step.max()) + 1) + ops.step[order]
    first = np.concatenate([[True], key[1:] != key[:-1]])
    index = np.arange(len(order))
    return order, index - np.maximum.accumulate(np.where(first, index, 0))


def _computed_before(ops: Ops, order: Int64s, place: Int64s) -> Int64s:
    """For each computation the one before it on its rank, in its step; -1 if none."""
    found = np.full(len(ops), UNKNOWN)
    found[order[1:]] = np.where(place[1:] > 0, order[:-1], UNKNOWN)
    return found


def _pauses(ops: Ops, before: list[Int64s]) -> Floats:
    """How long after the last thing that it waits for each computation began; 0 for what is no computation."""
    waited = np.maximum.reduce([np.where(one >= 0, ops.end_ns[one], np.iinfo(np.int64).min) for one in before])
    known = (waited > np.iinfo(np.int64).min) & (ops.kind == COMPUTE)
    return np.where(known, np.maximum(ops.start_ns - waited, 0), 0).astype(np.float64)


def _run(ops: Ops, before: list[Int64s], took_ns: Floats, offset_ns: Floats, steps: int) -> Floats:
    """How long each step takes with these durations: times are pushed along the graph until none moves."""
    grouped = ops.group >= 0
    groups = int(ops.group.max()) + 1 if grouped.any() else 0
    transfer = np.full(groups, np.inf)
    np.minimum.at(transfer, ops.group[grouped], (ops.end_ns - ops.start_ns)[grouped])
    end = np.zeros(len(ops))
    for _ in range(_ROUNDS):
        begin = offset_ns + np.maximum.reduce([np.where(one >= 0, end[one], 0.0) for one in before])
        together = np.zeros(groups)
        np.maximum.at(together, ops.group[grouped], begin[grouped])
        moved = begin + took_ns
        moved[grouped] = together[ops.group[grouped]] + transfer[ops.group[grouped]]
        if np.array_equal(moved, end):
            break
        end = moved
    length = np.zeros(steps)
    np.maximum.at(length, ops.step, end)
    return length
