"""Least squares on the graph of clocks: offsets at knots of time, such that what clocks saw together happened at once.

The normal equations are solved by conjugate gradients; no matrix of clocks and knots is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Floats, Int64s

_REWEIGHTS: Final = 3
_FAR: Final = 2.0  # standard deviations from which a sight pulls less
_ROUNDS: Final = 300
_FINE_NS: Final = 100.0
_FIRM: Final = 1e6
_LOOSE: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Sights:
    """One element per clock and thing that it took part in: thing `number` was at `left_ns` by the offsets so far.

    It happened `share` of the way from knot `knot` to the next one: of these there is one per number.
    """

    number: Int64s
    clock: Int64s
    left_ns: Floats
    weight: Floats
    knot: Int64s
    share: Floats


def refined(sights: Sights, offset: Floats, held: float, fixed: Int64s) -> Floats:
    """What to add to `offset` (a row per knot, a column per clock); nothing to clocks that are `fixed`.

    `held` is the weight with which a knot is held to the one before. Sights that do not fit pull less and less.
    """
    pull = np.ones(len(sights.weight))
    added = np.zeros_like(offset)
    for _ in range(_REWEIGHTS):
        normal = _Normal.of(replace(sights, weight=sights.weight * pull), held, offset.shape)
        added = _solved(normal, offset, added, fixed)
        left = sights.left_ns - normal.seen(added)
        far = np.abs(left - normal.common(left)[sights.number]) * np.sqrt(sights.weight)
        pull = 1 / np.maximum(1.0, far / _FAR)
    return added


@dataclass(frozen=True, slots=True, eq=False)
class _Normal:
    """The normal equations, after the moment that sights have in common is eliminated."""

    sights: Sights
    early: Int64s  # place of the sight's clock at the knot before, in a table of knots and clocks
    late: Int64s
    share: Floats
    total: Floats  # weight of each number
    held: float
    shape: tuple[int, int]

    @classmethod
    def of(cls, sights: Sights, held: float, shape: tuple[int, int]) -> _Normal:
        early = sights.knot[sights.number] * shape[1] + sights.clock
        total: Floats = np.bincount(sights.number, sights.weight).astype(np.float64)
        return cls(sights, early, early + shape[1], sights.share[sights.number], total, held, shape)

    def seen(self, table: Floats) -> Floats:
        """What offsets at knots come to at each sight."""
        flat = table.ravel()
        result: Floats = (1 - self.share) * flat[self.early] + self.share * flat[self.late]
        return result

    def common(self, left: Floats) -> Floats:
        result: Floats = np.bincount(self.sights.number, self.sights.weight * left) / self.total
        return result

    def spread(self, left: Floats) -> Floats:
        """What sights pull at the knots, if `left` is what is left of them."""
        pulls = self.sights.weight * (left - self.common(left)[self.sights.number])
        return self._gathered((1 - self.share) * pulls, self.share * pulls)

    def run(self, table: Floats) -> Floats:
        """What knots pull at their neighbours."""
        steps = np.diff(table, axis=0) * self.held
        result = np.zeros_like(table)
        result[:-1] -= steps
        result[1:] += steps
        return result

    def applied(self, table: Floats) -> Floats:
        return self.spread(self.seen(table)) + self.run(table)

    def diagonal(self) -> Floats:
        weight = self.sights.weight
        own = weight * (1 - weight / self.total[self.sights.number])
        result = self._gathered((1 - self.share) ** 2 * own, self.share**2 * own)
        result[:-1] += self.held
        result[1:] += self.held
        return result

    def _gathered(self, early: Floats, late: Floats) -> Floats:
        size = self.shape[0] * self.shape[1]
        result: Floats = (np.bincount(self.early, early, size) + np.bincount(self.late, late, size)).astype(np.float64)
        return result.reshape(self.shape)


def _solved(normal: _Normal, offset: Floats, start: Floats, fixed: Int64s) -> Floats:
    """Conjugate gradients, scaled by the diagonal, from `start`."""
    diagonal = normal.diagonal()
    added = start.copy()
    rest = normal.spread(normal.sights.left_ns) - normal.run(offset) - normal.applied(added)
    rest[:, fixed] = 0.0
    scaled = rest / diagonal
    way, power = scaled.copy(), float(np.vdot(rest, scaled))
    for _ in range(_ROUNDS):
        if np.abs(scaled).max() < _FINE_NS:
            break
        ahead = normal.applied(way)
        ahead[:, fixed] = 0.0
        far = power / float(np.vdot(way, ahead))
        added += far * way
        rest -= far * ahead
        scaled = rest / diagonal
        power, before = float(np.vdot(rest, scaled)), power
        way = scaled + power / before * way
    return added


def variances(number: Int64s, clock: Int64s, square: Floats, clocks: int, fixed: Int64s) -> Floats:
    """The variance of the difference of each two clocks, if sights have these variances: one row and column per clock.

    As current in a network of resistors: paths side by side make it smaller, paths in a row add up.
    """
    unit = float(square.min())
    weights = np.zeros((int(number.max()) + 1, clocks))
    weights[number, clock] = unit / square
    laplacian = -(weights / weights.sum(axis=1)[:, None]).T @ weights
    index = np.arange(clocks)
    laplacian[index, index] += weights.sum(axis=0) + _LOOSE
    laplacian[fixed, fixed] += _FIRM
    inverse = np.linalg.inv(laplacian) * unit
    own = inverse[index, index]
    result: Floats = np.maximum(own[:, None] + own[None, :] - 2 * inverse, 0.0)
    return result
