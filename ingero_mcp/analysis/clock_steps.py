"""Clocks that jump: where the pulses of one clock leave those of the others at once, and stay away.

From a jump on, a clock is treated as another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.clock_blocks import FEWEST, LEAST_NS, SIDE, Blocks
from ingero_mcp.analysis.clock_curves import Curves
from ingero_mcp.analysis.grouping import Grouping
from ingero_mcp.analysis.pulses import Pulses

_TRIES: Final = 4  # clocks


@dataclass(frozen=True, slots=True)
class Cut:
    """Clock `earlier` jumped by `jump_ns` between two of its times (since the base) and is `later` from then on.

    What happened at `from_ns` of true time or afterwards belongs to `later`.
    """

    earlier: int
    later: int
    after_ns: float
    before_ns: float
    from_ns: float
    jump_ns: float


def find_cut(pulses: Pulses, curves: Curves) -> Cut | None:
    """The most conspicuous jump off `curves`, which are straight, by pulses that are all known; None where none is."""
    if not len(pulses):
        return None
    # Of two that see each other only, either may have jumped; where three meet there is no doubt.
    is_clear = np.repeat(pulses.sizes() > 2, pulses.sizes())
    is_enough = np.bincount(pulses.clock, is_clear, len(pulses.clocks)) >= 2 * FEWEST
    blocks = Blocks.of(pulses, curves, is_clear | ~is_enough[pulses.clock])
    jump = blocks.jumps()
    # A clock that jumps makes those that meet only it seem to jump as well: it has more to do with the matter.
    weight = np.abs(jump) * blocks.count[:, None]
    best = weight.max(axis=1)
    for clock in np.argsort(-best, kind="stable")[:_TRIES].tolist():
        block = int(np.argmax(weight[clock]))
        around = blocks.time[clock, max(block - SIDE + 1, 0) : block + SIDE + 1]
        cut = _located(pulses, curves, clock, around, abs(jump[clock, block])) if best[clock] > 0 else None
        if cut is not None:
            return cut
    return None


def split(pulses: Pulses, curves: Curves, cut: Cut) -> tuple[Pulses, Curves]:
    """The pulses with those after the cut given to a clock of their own, and a line for it too."""
    own = np.flatnonzero(pulses.clock == cut.earlier)
    true_ns = _by_others(pulses, curves, cut.earlier)
    is_later = true_ns >= cut.from_ns
    clock, before, after = pulses.clock.copy(), pulses.before_ns.copy(), pulses.after_ns.copy()
    clock[own[is_later]] = cut.later
    # What nobody else saw end may belong to either side; an entry may have been before the jump, its end after it.
    lost = np.isnan(true_ns) | (is_later & (cut.jump_ns < 0) & (before[own] <= cut.after_ns))
    before[own[lost]] = -np.inf
    after[own[np.isnan(true_ns)]] = np.inf
    clocks = np.append(pulses.clocks, pulses.clocks[cut.earlier])
    offset = np.column_stack([curves.offset_ns, curves.offset_ns[:, cut.earlier]])
    is_known = ~np.isnan(pulses.exit_ns[own] - true_ns)
    apart = pulses.exit_ns[own] - true_ns - curves.at(pulses.clock[own], np.nan_to_num(true_ns))
    for place, chosen in ((cut.earlier, ~is_later & is_known), (cut.later, is_later & is_known)):
        offset[:, place] += np.median(apart[chosen]) if chosen.any() else 0.0
    return (
        replace(pulses, clock=clock, before_ns=before, after_ns=after, clocks=clocks),
        replace(curves, offset_ns=offset),
    )


def _by_others(pulses: Pulses, curves: Curves, clock: int) -> Floats:
    """The true times of the events of one clock by what the other clocks say of them; NaN where they say nothing."""
    events = pulses.event[pulses.clock == clock]
    is_event = np.zeros(int(pulses.event.max(initial=0)) + 1, np.bool_)
    is_event[events] = True
    chosen = np.flatnonzero((pulses.clock != clock) & ~np.isnan(pulses.exit_ns) & is_event[pulses.event])
    shown = pulses.exit_ns[chosen]
    grouping = Grouping.of(pulses.event[chosen])
    moment: Floats = np.full(int(pulses.event.max(initial=0)) + 1, np.nan)
    moment[grouping.named] = grouping.medians(shown - curves.at_local(pulses.clock[chosen], shown))
    result: Floats = moment[events]
    return result


def _located(pulses: Pulses, curves: Curves, clock: int, around: Floats, jump: float) -> Cut | None:
    """Finds between which two pulses a jump is that lies somewhere `around` these times; None if it is none."""
    true_ns = _by_others(pulses, curves, clock)
    shown = pulses.exit_ns[pulses.clock == clock]
    near = np.flatnonzero((true_ns >= np.nanmin(around) - jump) & (true_ns <= np.nanmax(around) + jump))
    near = near[np.argsort(true_ns[near], kind="stable")]
    apart = shown[near] - true_ns[near] - curves.at(np.full(len(near), clock), true_ns[near])
    if len(near) < 2 * FEWEST:
        return None
    edge = max(FEWEST, len(near) // 8)
    low, high = np.median(apart[:edge]), np.median(apart[-edge:])
    cost = np.cumsum(np.abs(apart - low) - np.abs(apart - high))
    last = int(np.argmin(cost[:-1]))
    low, high = np.median(apart[: last + 1]), np.median(apart[last + 1 :])
    if abs(high - low) < max(LEAST_NS, jump / 2):
        return None
    return Cut(
        earlier=clock,
        later=len(pulses.clocks),
        after_ns=float(shown[near[last]]),
        before_ns=float(shown[near[last + 1]]),
        from_ns=float(true_ns[near[last + 1]]),
        jump_ns=float(high - low),
    )
