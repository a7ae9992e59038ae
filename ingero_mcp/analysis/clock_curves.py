"""Clocks laid over each other so that the pulses of every event meet: weighted least squares on the graph of clocks.

An offset is a line between knots. How much a knot may differ from the one before is held by how fast clocks drift, so
that a stretch in which some clocks do not meet is bridged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Floats, Int64s
from ingero_mcp.analysis.clock_graph import Sights, refined, variances
from ingero_mcp.analysis.grouping import Grouping
from ingero_mcp.analysis.pulses import Pulses

KNOT_NS: Final = 60e9
"""Drift is fitted anew at least this often."""

DRIFT: Final = 30e-6
"""Rates of clocks differ by 5 to 30 millionths."""

_CELLS: Final = 4  # per stretch between two knots; what happens in one is taken together
_CELLS_OF_LINE: Final = 16
_ROUNDS: Final = 2
_LASTING: Final = 0.4  # of the spread of pulses


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Offsets at `knots_ns`, which are evenly spaced nanoseconds of true time: one row per knot, one column per clock.

    `variance` is that of the difference between each two clocks, where more pulses do not help without end: what all
    pulses of a rank have in common cannot be averaged away.
    """

    knots_ns: Floats
    offset_ns: Floats
    variance: Floats

    def at(self, clock: Int64s, true_ns: Floats) -> Floats:
        """The offsets of `clock` at true times."""
        step = self.knots_ns[1] - self.knots_ns[0]
        place = np.clip((true_ns - self.knots_ns[0]) / step, 0, len(self.knots_ns) - 1)
        before = np.minimum(place.astype(np.int64), len(self.knots_ns) - 2)
        share = place - before
        result: Floats = (1 - share) * self.offset_ns[before, clock] + share * self.offset_ns[before + 1, clock]
        return result

    def at_local(self, clock: Int64s, local_ns: Floats) -> Floats:
        """The offsets of `clock` at times that it shows."""
        return self.at(clock, local_ns - self.at(clock, local_ns - self.offset_ns[0, clock]))


def components(pulses: Pulses) -> Int64s:
    """For each clock the lowest clock that it hangs together with through events."""
    count = len(pulses.clocks)
    starts = pulses.starts()
    edges = np.unique(np.repeat(pulses.clock[starts], pulses.sizes()) * count + pulses.clock)
    first, second = edges // max(count, 1), edges % max(count, 1)
    label = np.arange(count)
    while True:
        least = np.minimum(label[first], label[second])
        new = label.copy()
        np.minimum.at(new, first, least)
        np.minimum.at(new, second, least)
        new = new[new]
        if (new == label).all():
            return label
        label = new


def coarse(pulses: Pulses, references: Int64s) -> Floats:
    """One offset for each clock, walking from `references`, whose first pulse is at 0; NaN where no pulse leads."""
    offset = np.full(len(pulses.clocks), np.nan)
    first = np.full(len(pulses.clocks), np.inf)
    np.fmin.at(first, pulses.clock, pulses.exit_ns)
    offset[references] = np.where(np.isinf(first), np.nan, first)[references]
    starts, sizes = pulses.starts(), pulses.sizes()
    while len(starts):
        moment = np.repeat(np.fmin.reduceat(pulses.exit_ns - offset[pulses.clock], starts), sizes)
        new = np.flatnonzero(np.isnan(offset)[pulses.clock] & ~np.isnan(moment))
        if not len(new):
            break
        grouping = Grouping.of(pulses.clock[new])
        offset[grouping.named] = grouping.medians((pulses.exit_ns - moment)[new])
    return offset


def moments(pulses: Pulses, curves: Curves) -> Floats:
    """The true time of each element's event: the median of its pulses."""
    true_ns = pulses.exit_ns - curves.at_local(pulses.clock, pulses.exit_ns)
    return np.repeat(pulses.by_event().medians(true_ns), pulses.sizes())


def straight(pulses: Pulses, references: Int64s) -> Curves:
    """One straight line per clock, from pulses that are all known."""
    start = np.nan_to_num(coarse(pulses, references))
    true_ns = moments(pulses, _straight(0.0, 1e9, start))
    begin = float(true_ns.min())
    lines = _straight(begin, max(float(true_ns.max()), begin + 1e9), start)
    return straightened(pulses, lines, references)


def straightened(pulses: Pulses, lines: Curves, references: Int64s) -> Curves:
    """Better straight lines than `lines`, whose first and last time they keep."""
    return _fitted(pulses, moments(pulses, lines), lines, references, _CELLS_OF_LINE)[0]


def _straight(begin: float, end: float, offset: Floats) -> Curves:
    return Curves(np.array([begin, end]), np.stack([offset, offset]), np.zeros((0, 0)))


def align(pulses: Pulses, start: Curves, references: Int64s) -> Curves:
    """Offsets relative to `references`, whose lines of `start` stay, from pulses that are all known."""
    begin, end = float(start.knots_ns[0]), float(start.knots_ns[-1])
    knots = np.linspace(begin, end, max(2, int(np.ceil((end - begin) / KNOT_NS)) + 1))
    clocks = np.arange(len(pulses.clocks))
    offset = np.stack([start.at(clocks, np.full(len(clocks), knot)) for knot in knots])
    curves = Curves(knots, offset, start.variance)
    curves, square = _fitted(pulses, moments(pulses, start), curves, references, _CELLS)
    return replace(curves, variance=_variance(pulses, square, len(knots) - 1, references))


def _fitted(
    pulses: Pulses, true_ns: Floats, curves: Curves, references: Int64s, cells_between: int
) -> tuple[Curves, Floats]:
    """Better curves, and the square of the spread of the pulses of each link on each clock."""
    links = Grouping.of(pulses.link * len(pulses.clocks) + pulses.clock)
    step = float(curves.knots_ns[1] - curves.knots_ns[0])
    place = (true_ns - curves.knots_ns[0]) / step
    cell = np.clip(place * cells_between, 0, (len(curves.knots_ns) - 1) * cells_between - 1).astype(np.int64)
    cells = Grouping.of(cell * len(links.named) + links.number)
    held = 1 / (DRIFT * step) ** 2
    left = _left(pulses, true_ns, curves)
    square = _spread(pulses, links, left)
    for _ in range(_ROUNDS):
        sights = _sights(pulses, cells, links, place, left, square, len(curves.knots_ns) - 2)
        added = refined(sights, curves.offset_ns, held, references)
        curves = replace(curves, offset_ns=curves.offset_ns + added)
        left = _left(pulses, true_ns, curves)
        square = _spread(pulses, links, left)
    return curves, square


def _left(pulses: Pulses, true_ns: Floats, curves: Curves) -> Floats:
    """What the curves leave of the pulses, relative to the median of their event."""
    left = pulses.exit_ns - curves.at(pulses.clock, true_ns)
    return left - np.repeat(pulses.by_event().medians(left), pulses.sizes())


def _spread(pulses: Pulses, links: Grouping, left: Floats) -> Floats:
    """The square of the robust spread of each link on each clock, drawn to that of all where there are few pulses."""
    # A moment is fitted for each event and an offset for each clock; so much of the spread is not left to see.
    free = len(left) - len(pulses.sizes()) - int(np.count_nonzero(np.bincount(pulses.clock)))
    lost = 1.4826**2 * len(left) / max(free, len(left) / 9)
    every, own = float(np.median(np.abs(left))) ** 2, links.medians(np.abs(left)) ** 2
    result: Floats = lost * (links.sizes * own + 4 * every) / (links.sizes + 4)
    return result


def _sights(
    pulses: Pulses, cells: Grouping, links: Grouping, place: Floats, left: Floats, square: Floats, last: int
) -> Sights:
    """Pulses of one link in one cell of time taken together."""
    clocks = len(pulses.clocks)
    cell, link = cells.named // len(links.named), cells.named % len(links.named)
    number = Grouping.of(cell * (int(pulses.link.max()) + 1) + links.named[link] // clocks).number
    count = np.bincount(number, cells.sizes)
    middle = np.bincount(number, np.bincount(cells.number, place)) / count
    knot = np.minimum(middle.astype(np.int64), last)
    prior = np.bincount(links.number, pulses.spread_ns) / links.sizes
    weight = 1 / ((square + prior**2)[link] * (_LASTING**2 + 1 / cells.sizes))
    return Sights(number, links.named[link] % clocks, cells.medians(left), weight, knot, middle - knot)


def _variance(pulses: Pulses, square: Floats, stretches: int, references: Int64s) -> Floats:
    """Of each two clocks, if what cannot be averaged away is of each link's pulses what it may be at most.

    That is the usual spread, and of the spread that is seen a part: ends that come late at random come late on average.
    Links of the same clocks may all be wrong in the same way.
    """
    clocks = len(pulses.clocks)
    links = Grouping.of(pulses.link * clocks + pulses.clock)
    prior = np.bincount(links.number, pulses.spread_ns) / links.sizes
    seen = square * (_LASTING**2 + 1 / np.maximum(links.sizes / stretches, 1))
    number, clock = Grouping.of(links.named // clocks).number, links.named % clocks
    # Two links have the same clocks if random numbers of their clocks have the same sum.
    marks = np.random.default_rng(0).integers(0, 1 << 50, clocks).astype(np.float64)
    alike = Grouping.of(np.bincount(number, marks[clock]).astype(np.int64))
    count = np.bincount(alike.number)[alike.number]
    return variances(number, clock, (prior**2 + seen) * count[number], clocks, references)
