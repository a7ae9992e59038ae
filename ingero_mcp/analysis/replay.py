"""Replay: how long the steps of a job would take with other durations of its operations.

Three questions are asked of the graph of operations (`analysis/operations.py`): what if every rank worked as long as
the ranks do in the mean, what if the work of the stages were levelled, and what if some ranks worked like their peers.
The idea is ByteDance's what-if analysis (OSDI 2025, arXiv 2505.05713): actual over ideal time is the slowdown that
stragglers cause, and waits are not counted as waste.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Bools, Floats, Int64s
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.operations import COMPUTE, WAIT, Operations, Ops, operations
from ingero_mcp.analysis.robust import median_of_columns
from ingero_mcp.analysis.roles import Roles, find_roles

_USUAL: Final = 0.75  # of the pauses before an operation: longer ones are no usual launch
_MOST_CELLS: Final = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Ideal:
    """Steps by number: how long they took, and would have taken. Nanoseconds."""

    steps: Int64s
    actual_ns: Floats
    ideal_ns: Floats


def ideal_steps(evidence: Evidence) -> Ideal | None:
    """The steps with the work shared out evenly; None where computing or its steps were not recorded."""
    recorded = operations(evidence)
    if recorded is None:
        return None
    return _ideal(recorded, _even_work(recorded.ops), _usual(recorded, find_roles(evidence)))


def levelled_steps(evidence: Evidence, roles: Roles) -> Ideal | None:
    """The steps with the work of the roles (stages) levelled, whatever else ranks differ by; None as above."""
    recorded = operations(evidence)
    if recorded is None:
        return None
    ops = recorded.ops
    computes = ops.kind == COMPUTE
    of_op = np.array([roles.of_rank.get(rank, UNKNOWN) for rank in ops.rank.tolist()])
    took_ns = recorded.took_ns.copy()
    work = {role: _work_of(recorded, computes & (of_op == role)) for role in roles.all}
    mean = float(np.mean([ns for ns in work.values() if ns > 0]))
    for role, ns in work.items():
        if ns > 0:
            took_ns[computes & (of_op == role)] *= mean / ns
    return _ideal(recorded, took_ns, _usual(recorded, roles))


def healed_steps(evidence: Evidence, roles: Roles, ranks: Collection[int]) -> Ideal | None:
    """The steps if some ranks had worked like their peers; None as above, and where one of them has no peers.

    Each computation, and the pause before it, is as long as its peers' in the median, but for what one of the peers is
    above or below that in the step before: they are healthy, and healthy ranks scatter.
    """
    recorded = operations(evidence)
    if recorded is None:
        return None
    took_ns, pause_ns, first_ns = recorded.took_ns.copy(), _usual(recorded, roles), recorded.since_begin_ns
    for role in {roles.of_rank.get(rank, UNKNOWN) for rank in ranks}:
        peers = [rank for rank in roles.ranks(role) if rank not in ranks]
        sick = [rank for rank in roles.ranks(role) if rank in ranks]
        if not peers:
            return None
        computed, first = (recorded.order, recorded.place), recorded.in_order(recorded.is_first)
        for lined_up, values in ((computed, took_ns), (computed, pause_ns), (first, first_ns)):
            if not _heal(recorded, lined_up, (peers, sick), values):
                return None
    return _ideal(recorded, took_ns, pause_ns, first_ns)


def _ideal(recorded: Operations, took_ns: Floats, pause_ns: Floats, first_ns: Floats | None = None) -> Ideal:
    # Where the recorded lengths do not fit between the recorded times, a step took what they need.
    needed_ns = recorded.run(recorded.took_ns, recorded.pause_ns)
    actual_ns = np.maximum(recorded.last_ns - recorded.begin_ns, needed_ns)
    return Ideal(recorded.numbers, actual_ns, recorded.run(took_ns, pause_ns, first_ns))


def _work_of(recorded: Operations, chosen: Bools) -> float:
    """How long the ranks of these operations compute in a step: the median over ranks and steps."""
    key = recorded.ops.rank[chosen] * len(recorded.numbers) + recorded.ops.step[chosen]
    known, place = np.unique(key, return_inverse=True)
    total = np.bincount(place.ravel(), recorded.took_ns[chosen], len(known))
    return float(np.median(total)) if len(total) else 0.0


def _heal(
    recorded: Operations, lined_up: tuple[Int64s, Int64s], ranks: tuple[list[int], list[int]], values: Floats
) -> bool:
    """Put in place what healthy ranks needed; False where the operations are too many to be lined up.

    `lined_up` are operations and their places in their step, `ranks` the peers and those that are healed.
    """
    (order, place), (peers, sick), ops = lined_up, ranks, recorded.ops
    shape = len(recorded.numbers), int(place.max(initial=0)) + 1
    if (len(peers) + 1) * shape[0] * shape[1] > _MOST_CELLS:
        return False
    healthy = np.full((len(peers), *shape), np.nan)
    for row, rank in enumerate(peers):
        mine = np.flatnonzero(ops.rank[order] == rank)
        healthy[row, ops.step[order[mine]], place[mine]] = values[order[mine]]
    typical = median_of_columns(healthy.reshape(len(peers), -1)).reshape(shape)
    for number, rank in enumerate(sick):
        scatter = np.roll(healthy[number % len(peers)] - typical, number // len(peers) + 1, axis=0)
        mine = np.flatnonzero(ops.rank[order] == rank)
        drawn = (typical + np.nan_to_num(scatter))[ops.step[order[mine]], place[mine]]
        values[order[mine]] = np.where(np.isfinite(drawn), np.maximum(drawn, 0), values[order[mine]])
    return True


def _even_work(ops: Ops) -> Floats:
    """Durations with which all ranks compute as long in a step as they do in the mean, and no optimizer waits."""
    took = (ops.end_ns - ops.start_ns).astype(np.float64)
    ranks, column = np.unique(ops.rank, return_inverse=True)
    steps = int(ops.step.max()) + 1
    for kind in (COMPUTE, WAIT):
        chosen = ops.kind == kind
        total = np.zeros((steps, len(ranks)))
        np.add.at(total, (ops.step[chosen], column[chosen]), took[chosen])
        has = total > 0
        count = np.maximum(has.sum(axis=1), 1)
        least = np.where(has, total, np.inf).min(axis=1)
        even = total.sum(axis=1) / count if kind == COMPUTE else np.where(np.isfinite(least), least, 0.0)
        scale = np.divide(even[:, None], total, out=np.zeros_like(total), where=has)
        took[chosen] *= scale[ops.step[chosen], column[chosen]]
    return took


def _usual(recorded: Operations, roles: Roles) -> Floats:
    """The pauses, none longer than is usual at its place in the step on ranks of its role."""
    ops, pause_ns, order, place = recorded.ops, recorded.pause_ns, recorded.order, recorded.place
    role = np.array([roles.of_rank.get(rank, UNKNOWN) for rank in ops.rank[order].tolist()])
    alike = np.unique(np.stack([role, place]), axis=1, return_inverse=True)[1].ravel()
    usual = np.zeros(len(ops))
    for there in np.split(order[np.argsort(alike, kind="stable")], np.cumsum(np.bincount(alike))[:-1]):
        kept = np.sort(pause_ns[there])[: max(1, int(_USUAL * len(there)))]
        usual[there] = np.minimum(pause_ns[there], kept.mean())
    return usual
