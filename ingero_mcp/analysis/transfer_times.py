"""Transfer times: how long collectives, sends and receives took after the last of their ranks had entered.

The last rank to enter waits for nobody, so the shortest time inside a collective is the time of the transfer itself. It
is measured on one clock, and it does not matter who was late. All members have to be seen for it: one that was not may
have been the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Bools, Calls, Floats, Int64s
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.grouping import Grouping
from ingero_mcp.analysis.steps import Steps

_PRIME: Final = np.int64(1_000_003)


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """One element per transfer, over what it went and when.

    `comm` is an index into `comm_ids` and `members`: a communicator, or a pair of ranks that send and receive. `kind`
    is the same for the same operation and size, `row` a call of the transfer (-1 for sends).
    """

    comm: Int64s
    kind: Int64s
    step: Int64s
    time_ns: Floats
    row: Int64s
    comm_ids: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.comm)

    def where(self, chosen: Bools) -> Transfers:
        """The transfers of a mask."""
        columns = {name: getattr(self, name)[chosen] for name in ("comm", "kind", "step", "time_ns", "row")}
        return replace(self, **columns)


def transfers(calls: Calls, steps: Steps) -> Transfers:
    """The collectives that two ranks or more timed."""
    return _measured(calls, steps.of_call, np.full(len(calls.comm_ids), 2, dtype=np.int64))


def whole_transfers(evidence: Evidence, steps: Steps) -> Transfers:
    """The collectives that all members of their communicators timed, and the sends that both ends did."""
    calls, known = evidence.calls, evidence.communicators
    sizes = np.array([max(known[name].nranks, 2) if name in known else 2 for name in calls.comm_ids], dtype=np.int64)
    collectives = _measured(calls, steps.of_call, sizes)
    sends = evidence.sends.calls
    if not len(sends) or not len(calls):
        return collectives
    pairs = _measured(sends, _steps_of(sends, calls, steps), np.full(len(sends.comm_ids), 2, dtype=np.int64))
    return Transfers(
        np.concatenate([collectives.comm, pairs.comm + len(calls.comm_ids)]),
        np.concatenate([collectives.kind, ~pairs.kind]),
        np.concatenate([collectives.step, pairs.step]),
        np.concatenate([collectives.time_ns, pairs.time_ns]),
        np.concatenate([collectives.row, np.full(len(pairs), UNKNOWN, dtype=np.int64)]),
        (*calls.comm_ids, *(name.split(" ", 1)[0] for name in sends.comm_ids)),
        (*collectives.members, *pairs.members),
    )


def ratios(times: Transfers, steps: int) -> Floats:
    """By how much longer than usual transfers took: `[step, comm]`, NaN where there were none.

    What is usual is the median of the same operation and size on the same communicator. Long transfers weigh more, as
    those of small messages do not depend on the bandwidth.
    """
    comms = len(times.comm_ids)
    slots = Grouping.of(times.kind * np.int64(comms + 1) + times.comm)
    usual = slots.medians(times.time_ns)[slots.number]
    place = times.step * comms + times.comm
    taken = np.bincount(place, weights=times.time_ns, minlength=steps * comms)
    expected = np.bincount(place, weights=usual, minlength=steps * comms)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected > 0, taken / expected, np.nan).reshape(steps, comms)


def _measured(calls: Calls, of_call: Int64s, sizes: Int64s) -> Transfers:
    chosen = np.flatnonzero((calls.done_ns != UNKNOWN) & (of_call != UNKNOWN))
    if not len(chosen):
        none = np.zeros(0, dtype=np.int64)
        return Transfers(none, none, none, np.zeros(0), none, calls.comm_ids, ((),) * len(calls.comm_ids))
    collective = calls.collective[chosen]
    size = int(collective.max()) + 1
    shortest = np.full(size, np.inf)
    np.minimum.at(shortest, collective, (calls.done_ns[chosen] - calls.enter_ns[chosen]).astype(np.float64))
    some = np.full(size, UNKNOWN, dtype=np.int64)
    some[collective] = chosen
    rows = some[some != UNKNOWN]
    ranks = np.bincount(collective, minlength=size)[calls.collective[rows]]
    rows = rows[ranks >= sizes[calls.comm[rows]]]
    return Transfers(
        calls.comm[rows],
        _kind(calls, of_call, rows),
        of_call[rows],
        np.maximum(shortest[calls.collective[rows]], 1.0),
        rows,
        calls.comm_ids,
        _members(calls),
    )


def _kind(calls: Calls, of_call: Int64s, rows: Int64s) -> Int64s:
    """A number for the operation and size; where sizes are not known, for its place in the step."""
    size = calls.bytes[rows]
    if (size == UNKNOWN).any() and len(rows):
        step = calls.comm[rows] * (int(of_call.max()) + 1) + of_call[rows]
        first = np.full(int(step.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, step, calls.seq[rows])
        size = np.where(size == UNKNOWN, ~(calls.seq[rows] - first[step]), size)
    return np.asarray(np.abs(calls.op[rows] * _PRIME * _PRIME + size * 31))


def _members(calls: Calls) -> tuple[tuple[int, ...], ...]:
    """The ranks that were seen in each communicator."""
    ranks = int(calls.rank.max()) + 1
    seen: Bools = np.bincount(calls.comm * ranks + calls.rank, minlength=len(calls.comm_ids) * ranks) > 0
    return tuple(tuple(np.flatnonzero(row).tolist()) for row in seen.reshape(len(calls.comm_ids), ranks))


def _steps_of(sends: Calls, calls: Calls, steps: Steps) -> Int64s:
    """The step of each send or receive: as it says itself, else that of its rank's next collective."""
    if steps.source == "named" and (sends.step != UNKNOWN).all():
        found = np.searchsorted(steps.numbers, sends.step).clip(0, len(steps) - 1)
        return np.asarray(np.where(steps.numbers[found] == sends.step, found, UNKNOWN))
    base = min(int(calls.enter_ns.min()), int(sends.enter_ns.min()))
    length = max(int(calls.enter_ns.max()), int(sends.enter_ns.max())) - base + 1
    key = calls.rank * length + (calls.enter_ns - base)
    order = np.argsort(key, kind="stable")
    following = np.searchsorted(key[order], sends.rank * length + (sends.enter_ns - base))
    next_call = order[following.clip(0, len(order) - 1)]
    is_mine = (following < len(order)) & (calls.rank[next_call] == sends.rank)
    return np.where(is_mine, steps.of_call[next_call], UNKNOWN)
