"""Shifts: a stretch of steps in which things took longer than in the others, and by more than chance would have it.

The noise is taken from differences between neighbouring steps, which a shift hardly touches. Of all stretches the one
with the largest difference from the rest, in spreads of that difference, is chosen; choosing among many has its price.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.robust import spread

_PLACES: Final = 96  # where a stretch may begin or end
_LEAST: Final = 3  # steps of a stretch
_EVIDENCE: Final = 9.0  # nats over the price of choosing
_CLIP: Final = 6.0  # a single wild step must not look like a stretch
_QUIET: Final = 0.005  # spreads below this share are not believed


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """A column of the series and the steps in which it was high; `difference` is how much, `spread` what is usual."""

    column: int
    high: Bools
    difference: float
    spread: float


def find_shift(series: Floats, most: float = 0.9) -> Shift | None:
    """The clearest shift in `series[step, column]` (logarithms of durations, NaN where unknown); None if there is none.

    At most the share `most` of the steps may be high. A shift that comes and goes is one: steps inside the stretch that
    are as low as those outside of it are not counted.
    """
    noise = np.array([_noise(column) for column in series.T])
    usable = np.flatnonzero(np.isfinite(noise) & (np.isfinite(series).sum(axis=0) >= 4 * _LEAST))
    if not len(usable):
        return None
    gain, begin, end = _best_stretches(series[:, usable], noise[usable])
    best = int(gain.argmax())
    bounds = min(len(series), _PLACES)
    if gain[best] < log(bounds * bounds / 2 * len(usable)) + _EVIDENCE:
        return None
    column = int(usable[best])
    return _split(series[:, column], column, int(begin[best]), int(end[best]), most)


def high_steps(series: Floats, inside: Bools) -> Bools:
    """Of the steps inside a stretch those that are nearer to its level than to that of the steps outside."""
    smooth = _smooth(series)
    with np.errstate(invalid="ignore"):
        low, level = float(np.nanmedian(series[~inside])), float(np.nanpercentile(smooth[inside], 75))
        return np.asarray(inside & (smooth > (low + level) / 2))


def _split(series: Floats, column: int, begin: int, end: int, most: float) -> Shift | None:
    inside = np.zeros(len(series), dtype=np.bool_)
    inside[begin:end] = True
    high = high_steps(series, inside)
    known = np.isfinite(series)
    if not _LEAST <= (high & known).sum() <= most * known.sum():
        return None
    low = ~high & known
    usual = spread(series[low])
    difference = float(np.median(series[high & known]) - np.median(series[low]))
    # Where what is usual varies by itself as much as this, it has no level to be above of.
    return Shift(column, high, difference, usual) if difference > usual else None


def _noise(column: Floats) -> float:
    known = column[np.isfinite(column)]
    return max(spread(np.diff(known)) / 2**0.5, _QUIET) if len(known) > 2 else np.nan


def _best_stretches(series: Floats, noise: Floats) -> tuple[Floats, Int64s, Int64s]:
    """For each column the stretch with the most evidence: that in nats, its begin and its end."""
    steps = len(series)
    center = np.nanmedian(series, axis=0)
    z = np.clip((series - center) / noise, -_CLIP, _CLIP)
    known = np.isfinite(z)
    sums = np.vstack([np.zeros((1, z.shape[1])), np.cumsum(np.where(known, z, 0.0), axis=0)])
    counts = np.vstack([np.zeros((1, z.shape[1])), np.cumsum(known, axis=0)])
    bounds = np.unique(np.linspace(0, steps, min(steps, _PLACES) + 1).astype(np.int64))
    best = np.zeros(z.shape[1])
    begin, end = np.zeros(z.shape[1], dtype=np.int64), np.zeros(z.shape[1], dtype=np.int64)
    for place, first in enumerate(bounds[:-1].tolist()):
        last = bounds[place + 1 :]
        inside, total = counts[last] - counts[first], counts[-1]
        mean = sums[-1] / total
        excess = sums[last] - sums[first] - inside * mean
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = excess * excess * total / (2 * inside * (total - inside))
        gain = np.where((excess > 0) & (inside >= _LEAST) & (total - inside >= _LEAST), gain, 0.0)
        where = gain.argmax(axis=0)
        value = gain[where, np.arange(len(where))]
        better = value > best
        best = np.where(better, value, best)
        begin, end = np.where(better, first, begin), np.where(better, last[where], end)
    return best, begin, end


def _smooth(series: Floats) -> Floats:
    """The median of each step and its neighbours."""
    padded = np.concatenate([[np.nan], series, [np.nan]])
    near = np.stack([padded[:-2], padded[1:-1], padded[2:]])
    known = np.isfinite(near).any(axis=0)
    result = np.full(len(series), np.nan)
    result[known] = np.nanmedian(near[:, known], axis=0)
    return result
