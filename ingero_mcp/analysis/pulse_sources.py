"""Where pulses come from: collectives, sends with their receives, and offsets that somebody measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Calls, Floats, Int64s
from ingero_mcp.analysis.grouping import Grouping
from ingero_mcp.analysis.pulses import ARRAYS, SPREAD_NS, Pulses, of_several_clocks, starts_of

_SYNCHRONOUS: Final = frozenset({"allreduce", "allgather", "reducescatter", "alltoall", "barrier"})
"""Nobody can leave one of these before everybody has entered. A broadcast or a reduce promises less."""

_WAITED: Final = 2.0  # times as long as the quickest transfer: somebody waited
_UNCLEAR: Final = 10.0  # times as far apart may the ends be if nobody did

_MOST: Final = 300_000  # elements; more cost time and tell nothing new
_FEW: Final = 64  # events of a link, all of which stay

_SMALL: Final = 1 << 40  # a number that may be multiplied by that of clocks


@dataclass(frozen=True, slots=True)
class ClockSample:
    """An offset that somebody measured: `clock` was ahead of the clock of all samples by `offset_ns` +- `bound_ns`.

    `at_ns` is on `clock`.
    """

    clock: int
    at_ns: int
    offset_ns: float
    bound_ns: float


def gather(calls: Calls, sends: Calls | None = None, samples: Sequence[ClockSample] = ()) -> Pulses:
    """The pulses of collectives, of sends with their receives (whose op ends in "recv"), and of samples.

    `clocks` holds every clock, those without a pulse too. Each sample is an event of its clock and of one more, the
    last, whose number is no clock's.
    """
    is_synchronous = _named(calls, lambda op: op.removeprefix("nccl") in _SYNCHRONOUS)
    parts = [calls.where(is_synchronous & (calls.collective >= 0))]
    every = [calls.clock, np.array([sample.clock for sample in samples], np.int64)]
    if sends is not None:
        parts.append(sends.where(sends.collective >= 0))
        every.append(sends.clock)
    clocks = np.unique(np.concatenate(every))
    if samples:
        clocks = np.append(clocks, clocks[-1] + 1)
    pulses, collective_links = _of_calls(parts, clocks)
    pulses = _thinned(_links_by_clocks(of_several_clocks(pulses), collective_links))
    return _with_samples(pulses, samples) if samples else pulses


def _of_calls(parts: list[Calls], clocks: Int64s) -> tuple[Pulses, int]:
    """The pulses of all parts, and how many links come from the first of them."""
    is_transfer = np.repeat([False, True][: len(parts)], [len(part) for part in parts])
    is_recv = np.concatenate([_named(part, lambda op: op.endswith("recv")) for part in parts])
    event, link = (_numbered(parts, name) for name in ("collective", "comm"))
    clock = np.concatenate([part.clock for part in parts])
    is_gapless = len(clocks) and clocks[-1] - clocks[0] < len(clocks)
    clock = clock - clocks[0] if is_gapless else np.searchsorted(clocks, clock)
    enter, done = (np.concatenate([getattr(part, name) for part in parts]) for name in ("enter_ns", "done_ns"))
    known = np.concatenate([enter[enter >= 0], done[done >= 0]])
    base_ns = int(known.min()) if len(known) else 0
    exit_ns = np.where(done >= 0, (done - base_ns).astype(np.float64), np.nan)
    # Who receives cannot be done before the other has sent; a send may be over before anybody receives.
    before_ns = np.where((enter >= 0) & ~(is_transfer & is_recv), (enter - base_ns).astype(np.float64), -np.inf)
    after_ns = np.where((done >= 0) & ~(is_transfer & ~is_recv), (done - base_ns).astype(np.float64), np.inf)
    key = event * max(len(clocks), 1) + clock
    order = np.argsort(key)
    first = starts_of(key[order])
    pulses = Pulses(
        event=event[order][first],
        link=link[order][first],
        clock=clock[order][first],
        exit_ns=_reduced(np.fmin, exit_ns[order], first),
        before_ns=_reduced(np.maximum, before_ns[order], first),
        after_ns=_reduced(np.minimum, after_ns[order], first),
        took_ns=_reduced(np.fmax, np.where((enter >= 0) & (done >= 0), done - enter, np.nan)[order], first),
        spread_ns=np.full(len(first), SPREAD_NS),
        clocks=clocks,
        base_ns=base_ns,
    )
    return pulses, int(link[~is_transfer].max(initial=-1)) + 1


def _named(calls: Calls, wanted: Callable[[str], bool]) -> Bools:
    chosen = np.array([wanted(op.lower()) for op in calls.ops], np.bool_)
    return chosen[calls.op] if len(chosen) else np.zeros(len(calls), np.bool_)


def _numbered(parts: list[Calls], name: str) -> Int64s:
    """One column of all parts, with numbers that no two parts share."""
    columns, least = [], 0
    for part in parts:
        column = getattr(part, name)
        if len(column):
            if int(column.max()) - int(column.min()) > _SMALL:
                column = np.unique(column, return_inverse=True)[1]
            columns.append(column - column.min() + least)
            least = int(columns[-1].max()) + 1
    return np.concatenate(columns) if columns else np.zeros(0, np.int64)


def _reduced(ufunc: np.ufunc, values: Floats, first: Int64s) -> Floats:
    result: Floats = ufunc.reduceat(values, first) if len(first) else values[:0]
    return result


def _links_by_clocks(pulses: Pulses, collective_links: int) -> Pulses:
    """Sends of one communicator become links of two clocks each: one for each direction, and for how sure it is.

    A receiver may learn of the end later than the sender, by no more than a transfer takes; what that makes of one
    direction, the other makes good. If nobody waited for the other, the receiver may have come when all was sent.
    """
    starts, clocks = pulses.starts(), len(pulses.clocks)
    link = pulses.link[starts]
    is_send = link >= collective_links
    pair = Grouping.of(np.where(is_send, pulses.clock[starts] * clocks + pulses.clock[starts + 1], -1))
    took = np.fmax.reduceat(pulses.took_ns, starts) if len(starts) else np.zeros(0)
    least = np.full(len(pair.named), np.inf)
    np.fmin.at(least, pair.number, took)
    least = np.where(np.isinf(least), 0.0, least)[pair.number]
    is_unclear = is_send & ~(took > _WAITED * least)
    way = 4 * pair.number + 2 * np.isinf(pulses.before_ns[starts]) + is_unclear
    is_lone = is_send & ~np.isin(way ^ 2, way)
    link = Grouping.of(np.where(is_send, collective_links + way, link)).number
    spread = np.where(is_lone, np.maximum(least / 4, SPREAD_NS), SPREAD_NS)
    spread = np.where(is_unclear, np.maximum(spread, _UNCLEAR * SPREAD_NS), spread)
    sizes = pulses.sizes()
    return replace(pulses, link=np.repeat(link, sizes), spread_ns=np.repeat(spread, sizes))


def _thinned(pulses: Pulses) -> Pulses:
    """Every second, third, ... event of the links that have many, so that no more than about `_MOST` elements stay."""
    stride = -(-len(pulses) // _MOST)
    if stride <= 1:
        return pulses
    link = pulses.link[pulses.starts()]
    count = np.bincount(link)
    order = np.argsort(link, kind="stable")
    turn = np.empty(len(link), np.int64)
    turn[order] = np.arange(len(link)) - np.repeat(np.cumsum(count) - count, count)
    return pulses.where(((turn % stride == 0) | (count[link] <= _FEW))[pulses.event])


def _with_samples(pulses: Pulses, samples: Sequence[ClockSample]) -> Pulses:
    """A sample is what a collective of its clock and the common one would be that takes as long as its bound."""
    base_ns = pulses.base_ns or min(sample.at_ns for sample in samples)
    common = len(pulses.clocks) - 1
    at = np.array([float(sample.at_ns - base_ns) for sample in samples])
    enter = np.stack([at, at - [sample.offset_ns for sample in samples]], axis=1).ravel()
    bound = np.repeat([sample.bound_ns for sample in samples], 2)
    clock = np.searchsorted(pulses.clocks, [sample.clock for sample in samples])
    event = np.arange(len(samples)) + int(pulses.event.max(initial=-1)) + 1
    added: dict[str, Any] = {
        "event": np.repeat(event, 2),
        "link": np.repeat(clock + int(pulses.link.max(initial=-1)) + 1, 2),
        "clock": np.stack([clock, np.full(len(samples), common)], axis=1).ravel(),
        "exit_ns": enter + bound,
        "before_ns": enter,
        "after_ns": enter + bound,
        "took_ns": bound,
        "spread_ns": np.maximum(bound / 2, SPREAD_NS / 10),
    }
    return replace(
        pulses, base_ns=base_ns, **{name: np.concatenate([getattr(pulses, name), added[name]]) for name in ARRAYS}
    )
