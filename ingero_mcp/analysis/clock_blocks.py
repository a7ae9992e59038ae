"""How far each clock is from the others, condensed into blocks of time: what jumps and noise are seen by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.clock_curves import DRIFT, Curves, moments
from ingero_mcp.analysis.grouping import Grouping
from ingero_mcp.analysis.pulses import SPREAD_NS, Pulses

FEWEST: Final = 3  # pulses in a block
SIDE: Final = 3  # blocks on each side of a jump
LEAST_NS: Final = 1e6  # jumped, if at all

_BLOCKS: Final = 64  # into how many medians the pulses of a clock are condensed
_SURE: Final = 3.0  # times the noise
_NOISE: Final = 1.05  # standard deviations in the median step from one value to the next
_LOUD: Final = 6.0  # times the usual spread
_WANDER: Final = 10e-6  # what the rate of a clock may change within a window


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Medians of how far each clock is from the others: one row per clock, one column per block; NaN at the end."""

    apart: Floats
    time: Floats
    noise: Floats
    count: Int64s  # pulses of each clock
    number: Int64s  # the block of each pulse that is chosen

    @classmethod
    def of(cls, pulses: Pulses, curves: Curves, chosen: Bools) -> Blocks:
        true_ns = moments(pulses, curves)
        apart = pulses.exit_ns - curves.at(pulses.clock, true_ns) - true_ns
        # The median of two lies between them: each has only half of what they are apart.
        apart[np.repeat(pulses.sizes() == 2, pulses.sizes())] *= 2
        turn = np.empty(len(pulses.sizes()), np.int64)
        turn[np.argsort(true_ns[pulses.starts()])] = np.arange(len(turn))
        clock, apart, true_ns = pulses.clock[chosen], apart[chosen], true_ns[chosen]
        count = np.bincount(clock, minlength=len(pulses.clocks))
        order = np.argsort(clock * len(turn) + turn[pulses.event[chosen]])
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
        size = np.maximum(FEWEST, -(-count // _BLOCKS))
        last = np.maximum(count // size, 1) - 1
        number = clock * _BLOCKS + np.minimum(rank // size[clock], last[clock])
        grouping = Grouping.of(number)

        def table(values: Floats) -> Floats:
            result = np.full(len(count) * _BLOCKS, np.nan)
            result[grouping.named] = grouping.medians(values)
            return result.reshape(len(count), _BLOCKS)

        links = (clock * (int(pulses.link.max()) + 1) + pulses.link[chosen]) * len(turn) + turn[pulses.event[chosen]]
        noise = _from_one_to_next(links // len(turn), np.argsort(links), apart)
        return cls(table(apart), table(true_ns), _NOISE * table(noise), count, number)

    def jumps(self) -> Floats:
        """The jump after each block; 0 where noise and drift explain it."""
        run = np.diff(self.apart, axis=1) / np.diff(self.time, axis=1)
        is_long = np.count_nonzero(~np.isnan(run), axis=1) >= 2 * SIDE
        rate = np.where(is_long, _middle(run), 0.0)
        straight = self.apart - rate[:, None] * (self.time - self.time[:, :1])
        jump = _after(straight) - _before(straight)
        took = _after(self.time) - _before(self.time)
        drift = np.where(is_long, _WANDER, 2 * DRIFT)
        allowed = LEAST_NS + _SURE * _middle(self.noise)[:, None] + drift[:, None] * took
        is_far = np.nan_to_num(np.abs(jump)) > np.nan_to_num(allowed, nan=np.inf)
        return np.where(is_far, jump, 0.0)


def quiet(pulses: Pulses, curves: Curves) -> Pulses:
    """The pulses without stretches in which the ends of a clock come at random, as on a host with too much to do."""
    is_known = ~np.isnan(pulses.exit_ns)
    is_shared = np.bincount(pulses.event, is_known)[pulses.event] > 1
    known = np.flatnonzero(is_known & is_shared)
    blocks = Blocks.of(pulses.where(is_known), curves, np.ones(len(known), np.bool_))
    usual = _middle(blocks.noise)[:, None]
    is_loud = np.nan_to_num(blocks.noise) > np.nan_to_num(_LOUD * np.maximum(usual, SPREAD_NS / 2), nan=np.inf)
    # One block alone may be that of a jump.
    beside = np.pad(is_loud, ((0, 0), (1, 1)))
    before, after = beside[:, :-2], beside[:, 2:]
    is_loud = (is_loud & (before | after)) | (before & after)
    exit_ns = pulses.exit_ns.copy()
    exit_ns[known[is_loud.ravel()[blocks.number]]] = np.nan
    return replace(pulses, exit_ns=exit_ns)


def _from_one_to_next(link: Int64s, order: Int64s, apart: Floats) -> Floats:
    """How far each value is from the next of its link: neither drift nor a jump is taken for noise."""
    run = np.abs(np.diff(apart[order], append=0.0))
    last = np.flatnonzero(np.diff(link[order], append=-1))
    run[last] = run[np.maximum(last - 1, 0)]
    result = np.empty(len(order))
    result[order] = run
    return result


def _before(table: Floats) -> Floats:
    """The median of each element and the two to its left."""
    return _middle(np.stack([np.roll(_padded(table), shift, axis=1)[:, SIDE:-SIDE] for shift in range(SIDE)], axis=2))


def _after(table: Floats) -> Floats:
    """The median of the three elements to the right of each."""
    return _middle(
        np.stack([np.roll(_padded(table), -1 - shift, axis=1)[:, SIDE:-SIDE] for shift in range(SIDE)], axis=2)
    )


def _padded(table: Floats) -> Floats:
    return np.pad(table, ((0, 0), (SIDE, SIDE)), constant_values=np.nan)


def _middle(table: Floats) -> Floats:
    """The median along the last axis of what is not NaN; NaN where all is."""
    ordered = np.sort(table, axis=-1)
    count = np.count_nonzero(~np.isnan(ordered), axis=-1)
    low, high = np.maximum(count - 1, 0) // 2, np.maximum(count, 1) // 2
    pick = [
        np.take_along_axis(ordered, at[..., None], axis=-1)[..., 0]
        for at in (low, np.minimum(high, ordered.shape[-1] - 1))
    ]
    result: Floats = (pick[0] + pick[1]) / 2
    return result
