"""What causality alone allows clocks to be apart: nobody leaves a collective before everybody has entered it.

Between clocks that never meet in one event the bounds are chained through the clocks between them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.clock_curves import Curves
from ingero_mcp.analysis.pulses import Pulses

_ROUNDS: Final = 200
_FINE_NS: Final = 10.0


def causal_limits(pulses: Pulses, curves: Curves, references: Int64s) -> tuple[Floats, Floats, Floats]:
    """How far true offsets may be below and above the curves: one row per stretch between knots, one column per clock.

    Both are relative to `references`, one of each group of clocks that hangs together; infinite where nothing binds. A
    stretch that contradicts itself binds nothing; the third result is by how much it does, for the clocks concerned.
    """
    stretches, clocks = len(curves.knots_ns) - 1, len(pulses.clocks)
    shape = (stretches, clocks)
    if not len(pulses):
        return np.full(shape, -np.inf), np.full(shape, np.inf), np.zeros(shape)
    starts, sizes = pulses.starts(), pulses.sizes()
    own = np.where(np.isinf(pulses.after_ns), pulses.before_ns, pulses.after_ns)
    own = np.where(np.isinf(own), 0.0, own)
    before = pulses.before_ns - curves.at_local(pulses.clock, own)
    after = pulses.after_ns - curves.at_local(pulses.clock, own)
    entered, ended = np.maximum.reduceat(before, starts), np.minimum.reduceat(after, starts)
    step = curves.knots_ns[1] - curves.knots_ns[0]
    moment = np.where(np.isinf(entered), np.where(np.isinf(ended), 0.0, ended), entered)
    stretch = np.clip((moment - curves.knots_ns[0]) // step, 0, stretches - 1).astype(np.int64)
    node = np.repeat(stretch, sizes) * clocks + pulses.clock
    sources = (np.arange(stretches)[:, None] * clocks + references).ravel()
    low, high = (side.reshape(shape) for side in _chained(starts, node, before, after, sources, stretches * clocks))
    contradicts = np.flatnonzero(np.count_nonzero(low > high, axis=1))
    low[contradicts], high[contradicts] = -np.inf, np.inf
    strain, every = np.zeros(shape), np.zeros(stretches * clocks)
    missed = np.maximum(np.nan_to_num(entered - ended), 0.0)
    is_cause = (before == np.repeat(entered, sizes)) | (after == np.repeat(ended, sizes))
    np.maximum.at(every, node[is_cause], np.repeat(missed, sizes)[is_cause])
    strain[contradicts] = every.reshape(shape)[contradicts]
    return low, high, strain


def _chained(
    starts: Int64s, node: Int64s, before: Floats, after: Floats, sources: Int64s, nodes: int
) -> tuple[Floats, Floats]:
    low, high = np.full(nodes, -np.inf), np.full(nodes, np.inf)
    low[sources] = high[sources] = 0.0
    order = np.argsort(node, kind="stable")
    first = np.concatenate([[0], np.flatnonzero(np.diff(node[order])) + 1])
    named = node[order][first]
    is_free = ~np.isin(named, sources)
    sizes = np.diff(starts, append=len(node))
    for _ in range(_ROUNDS):
        # The moment at which all had entered is after every entry and before every exit, read on true clocks.
        earliest = np.repeat(np.maximum.reduceat(before - high[node], starts), sizes)
        latest = np.repeat(np.minimum.reduceat(after - low[node], starts), sizes)
        greatest = np.minimum.reduceat((after - earliest)[order], first)
        least = np.maximum.reduceat((before - latest)[order], first)
        # Where bounds cross they would go on crossing for ever.
        is_new = is_free & (low[named] <= high[named]) & _is_tighter(least, greatest, low[named], high[named])
        if not is_new.any():
            break
        chosen = named[is_new]
        high[chosen] = np.minimum(high[chosen], greatest[is_new])
        low[chosen] = np.maximum(low[chosen], least[is_new])
    return low, high


def _is_tighter(least: Floats, greatest: Floats, low: Floats, high: Floats) -> Bools:
    result: Bools = (greatest < high - _FINE_NS) | (least > low + _FINE_NS)
    return result
