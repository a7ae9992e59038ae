"""Replay: how long the steps of a job would take if every rank worked as long as the ranks do in the mean.

The operations of a step and what they wait for are a graph: computing goes on after the computing before it and after
what it receives, a receive ends after its send began, a collective after the last of its ranks came. What waits for
what is read off the recording: of each kind the latest operation of the rank that had ended when this one began. The
graph is run again with other durations. The idea is ByteDance's what-if analysis (OSDI 2025, arXiv 2505.05713): actual
over ideal time is the slowdown that stragglers of all kinds cause, and waits are not counted as waste.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Floats, Int64s
from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.roles import Roles, find_roles

_COMPUTE, _WAIT, _SEND, _RECEIVE, _COLLECTIVE = range(5)
_KINDS: Final = 5
_MOST_OPS: Final = 1_000_000
_ROUNDS: Final = 10_000
_AT_ONCE_NS: Final = 2_000  # an operation that ended so shortly after another began may have let it begin
_USUAL: Final = 0.75  # of the pauses before an operation: longer ones are no usual launch


@dataclass(frozen=True, slots=True, eq=False)
class Ideal:
    """Steps by number: how long they took, and would have taken with the work shared out evenly. Nanoseconds."""

    steps: Int64s
    actual_ns: Floats
    ideal_ns: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Ops:
    """Operations as parallel arrays; `step` is a place, `group` joins the ends of a transfer (-1: none)."""

    rank: Int64s
    step: Int64s
    kind: Int64s
    start_ns: Int64s
    end_ns: Int64s
    group: Int64s

    def __len__(self) -> int:
        return len(self.rank)


def ideal_steps(evidence: Evidence) -> Ideal | None:
    """The steps as they were and as they could have been; None where computing or its steps were not recorded."""
    numbers, ops = _ops(evidence)
    if not len(ops) or len(ops) > _MOST_OPS or not (ops.kind == _COMPUTE).any():
        return None
    before = [_latest_before(ops, kind) for kind in range(_KINDS)]
    # A GPU computes one thing after the other, whatever the recorded lengths say.
    before.append(_computed_before(ops))
    begin_ns = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(begin_ns, ops.step, ops.start_ns)
    last_ns = np.full(len(numbers), np.iinfo(np.int64).min)
    np.maximum.at(last_ns, ops.step, ops.end_ns)
    took_ns, pause_ns = (ops.end_ns - ops.start_ns).astype(np.float64), _pauses(ops, before)
    usual_ns = _usual(ops, pause_ns, find_roles(evidence))
    ideal_ns = _run(ops, before, _even_work(ops), usual_ns, begin_ns)
    # Where the recorded lengths do not fit between the recorded times, a step took what they need.
    actual_ns = np.maximum(last_ns - begin_ns, _run(ops, before, took_ns, pause_ns, begin_ns))
    return Ideal(numbers, actual_ns, ideal_ns)


def _ops(evidence: Evidence) -> tuple[Int64s, _Ops]:
    """Everything whose step is known, and the numbers of the steps."""
    work, sends, calls = evidence.work, evidence.sends, evidence.calls
    if work is None:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, _Ops(*(nothing for _ in range(6)))
    sent = sends.calls
    pairs = int(sent.collective.max()) + 1 if len(sent) else 0
    parts = [
        (work.rank, work.step, np.where(work.is_wait, _WAIT, _COMPUTE), work.start_ns, work.end_ns, None),
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
    return numbers, _Ops(rank[known], place.ravel(), kind[known], start[known], end[known], group[known])


def _latest_before(ops: _Ops, kind: int) -> Int64s:
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


def _even_work(ops: _Ops) -> Floats:
    """Durations with which all ranks compute as long in a step as they do in the mean, and no optimizer waits."""
    took = (ops.end_ns - ops.start_ns).astype(np.float64)
    ranks, column = np.unique(ops.rank, return_inverse=True)
    steps = int(ops.step.max()) + 1
    for kind in (_COMPUTE, _WAIT):
        chosen = ops.kind == kind
        total = np.zeros((steps, len(ranks)))
        np.add.at(total, (ops.step[chosen], column[chosen]), took[chosen])
        has = total > 0
        count = np.maximum(has.sum(axis=1), 1)
        least = np.where(has, total, np.inf).min(axis=1)
        even = total.sum(axis=1) / count if kind == _COMPUTE else np.where(np.isfinite(least), least, 0.0)
        scale = np.divide(even[:, None], total, out=np.zeros_like(total), where=has)
        took[chosen] *= scale[ops.step[chosen], column[chosen]]
    return took


def _in_order(ops: _Ops) -> tuple[Int64s, Int64s]:
    """Computations by rank, step and time, and the place of each in its step."""
    computed = np.flatnonzero(ops.kind == _COMPUTE)
    order = computed[np.lexsort((ops.start_ns[computed], ops.step[computed], ops.rank[computed]))]
    key = ops.rank[order] * (int(ops.step.max()) + 1) + ops.step[order]
    first = np.concatenate([[True], key[1:] != key[:-1]])
    index = np.arange(len(order))
    return order, index - np.maximum.accumulate(np.where(first, index, 0))


def _computed_before(ops: _Ops) -> Int64s:
    """For each computation the one before it on its rank, in its step; -1 if none."""
    found = np.full(len(ops), UNKNOWN)
    order, place = _in_order(ops)
    found[order[1:]] = np.where(place[1:] > 0, order[:-1], UNKNOWN)
    return found


def _pauses(ops: _Ops, before: list[Int64s]) -> Floats:
    """How long after the last thing that it waits for each computation began; 0 for what is no computation."""
    waited = np.maximum.reduce([np.where(one >= 0, ops.end_ns[one], np.iinfo(np.int64).min) for one in before])
    known = (waited > np.iinfo(np.int64).min) & (ops.kind == _COMPUTE)
    return np.where(known, np.maximum(ops.start_ns - waited, 0), 0).astype(np.float64)


def _usual(ops: _Ops, pause_ns: Floats, roles: Roles) -> Floats:
    """The pauses, none longer than is usual at its place in the step on ranks of its role."""
    order, place = _in_order(ops)
    role = np.array([roles.of_rank.get(rank, UNKNOWN) for rank in ops.rank[order].tolist()])
    alike = np.unique(np.stack([role, place]), axis=1, return_inverse=True)[1].ravel()
    usual = np.zeros(len(ops))
    for there in np.split(order[np.argsort(alike, kind="stable")], np.cumsum(np.bincount(alike))[:-1]):
        kept = np.sort(pause_ns[there])[: max(1, int(_USUAL * len(there)))]
        usual[there] = np.minimum(pause_ns[there], kept.mean())
    return usual


def _run(ops: _Ops, before: list[Int64s], took_ns: Floats, pause_ns: Floats, begin_ns: Int64s) -> Floats:
    """How long each step takes with these durations: times are pushed along the graph until none moves."""
    grouped = ops.group >= 0
    groups = int(ops.group.max()) + 1 if grouped.any() else 0
    transfer = np.full(groups, np.inf)
    np.minimum.at(transfer, ops.group[grouped], (ops.end_ns - ops.start_ns)[grouped])
    # What waits for nothing in its step begins when it did.
    alone = np.all([one < 0 for one in before], axis=0)
    offset = np.where(alone, ops.start_ns - begin_ns[ops.step], pause_ns)
    end = np.zeros(len(ops))
    for _ in range(_ROUNDS):
        begin = offset + np.maximum.reduce([np.where(one >= 0, end[one], 0.0) for one in before])
        together = np.zeros(groups)
        np.maximum.at(together, ops.group[grouped], begin[grouped])
        moved = begin + took_ns
        moved[grouped] = together[ops.group[grouped]] + transfer[ops.group[grouped]]
        if np.array_equal(moved, end):
            break
        end = moved
    length = np.zeros(len(begin_ns))
    np.maximum.at(length, ops.step, end)
    return length
