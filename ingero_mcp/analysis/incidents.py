"""Incidents in a row of numbers: in which steps was this larger than it should be, and is that more than chance?

What is usual is taken from the numbers themselves (median and MAD), never from a constant in milliseconds. Three shapes
are looked for: a stretch (from an onset on, or for a while), a comb (each n-th step), and single steps that recur. A
shape counts by the evidence for it (half the squared sum over the number of steps, in units of the spread, which is the
log of the likelihood ratio of a shifted mean), less what it costs to choose it among all such shapes.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import exp, lgamma, log
from typing import Final, Literal

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.outliers import MAD_TO_SIGMA

BEYOND: Final = 3.0
"""Spreads from which a single step stands out."""

FOR_GOOD: Final = 1.25
"""Spreads by which healthy ranks may well differ from their peers for good."""

_CLIP: Final = 6.0  # a single wild step must not look like a stretch of bad ones
_LEAST_EVIDENCE: Final = 5.0  # nats over the price of choosing: less than one case in a hundred
_CHANCE: Final = 1e-5  # how likely recurring single steps may be by chance, over all ranks; rates are estimated
_MOST_CANDIDATES: Final = 24  # rows that are looked at closely
_MOST_PERIOD: Final = 128  # what recurs more rarely is found as single steps
_MOST_BOUNDS: Final = 256  # places that are tried first for the ends of a stretch
_ENOUGH: Final = 200_000  # cells of a table, to take medians from
_LEAST_ROWS: Final = 200  # but so many rows of it
_PER_SPREAD: Final = 50  # how finely distances are counted
_RECURS: Final = 3  # what happens less often is a hiccup, whatever it cost

_FAR: Final = 20.0  # spreads
_MUCH: Final = 0.1  # of a step
_TOO_OFTEN: Final = 4  # times for chance, if nothing else ever comes near

Shape = Literal["stretch", "comb", "single"]


@dataclass(frozen=True, slots=True, eq=False)
class Incident:
    """Steps (indices, in order) in which a row was too large, by `excess` in the median, with the evidence in nats."""

    row: int
    steps: Int64s
    excess: float
    evidence: float
    shape: Shape
    period: int | None


def spread(values: Floats) -> float:
    """A robust standard deviation, NaN ignored; 0 where there is nothing."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0
    return float(MAD_TO_SIGMA * np.median(np.abs(finite - np.median(finite))))


def median_of_columns(values: Floats) -> Floats:
    """The median of each column, NaN ignored, of a long table that of some hundred rows; NaN where nothing is known."""
    values = values[:: max(1, min(values.size // _ENOUGH, len(values) // _LEAST_ROWS))]
    # Three times as fast as the one that ignores NaN, and most tables have none but in their first step.
    known = values[1:] if len(values) > 1 and np.isnan(values[0]).all() else values
    return np.asarray(np.nanmedian(known, axis=0) if np.isnan(known).any() else np.median(known, axis=0))


def find_incidents(excess: Floats, sigma: Floats, least: Floats, total: float) -> tuple[Incident, ...]:
    """The incidents in `excess[step, row]`, the one with the most evidence of each row.

    Values are by how much a row exceeds what is usual, NaN where that is not known; `sigma` is the spread of each row,
    `least` the smallest excess of each that counts. `total` is the time that all steps took.
    """
    steps, rows = excess.shape
    if not steps or not rows:
        return ()
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        distance = np.where(sigma > 0, excess / sigma, np.nan)
        # Single steps are beyond what is usual for the row: what it always is does not happen now and then.
        always = np.clip(np.nan_to_num(median_of_columns(distance)), 0, FOR_GOOD)
        beyond = np.isfinite(distance) & (distance - always > BEYOND) & (excess > least)
    z = _scores(distance)
    found = []
    candidates = _candidates(z, beyond)
    combs = _combs(z[:, candidates], excess[:, candidates], rows)
    for row, comb in zip(candidates.tolist(), combs, strict=True):
        shapes = [
            _stretch(z[:, row], excess[:, row], rows),
            comb,
            _recurring(excess, beyond, row, total),
            _unmatched(excess, float(sigma[row]), row, total),
        ]
        best = max((shape for shape in shapes if shape is not None), key=lambda one: one.evidence, default=None)
        if best is not None and best.excess >= least[row] and best.evidence > 0:
            found.append(Incident(row, best.steps, best.excess, best.evidence, best.shape, best.period))
    return tuple(found)


def _unmatched(excess: Floats, sigma: float, row: int, total: float) -> Incident | None:
    """Steps so far beyond everything else that counting them says less than their size does: in short recordings."""
    usual = total / len(excess)
    steps = np.flatnonzero(excess[:, row] > max(_FAR * sigma, _MUCH * usual))
    if len(steps) < _TOO_OFTEN:
        return None
    size = float(np.median(excess[steps, row]))
    others = np.delete(excess, row, axis=1)
    rest = np.delete(excess[:, row], steps)
    if max(np.nanmax(others, initial=0.0), np.nanmax(rest, initial=0.0)) > size / 4:
        return None
    return Incident(row, steps, size, float(len(steps)), "single", period_of(steps))


def _scores(distance: Floats) -> Floats:
    """Distances in spreads, but none larger than its place among those of the other rows is worth in a normal
    distribution.

    Durations have heavy tails: what is six spreads away may be what happens to everybody now and then.
    """
    known = np.isfinite(distance)
    bins = ((np.clip(np.where(known, distance, 0.0), -_CLIP, _CLIP) + _CLIP) * _PER_SPREAD).astype(np.int64)
    rows, size = distance.shape[1], int(2 * _CLIP * _PER_SPREAD) + 1
    flat = bins + np.arange(rows) * size
    of_row = np.bincount(flat[known], minlength=rows * size).reshape(rows, size)
    # A row that is at fault must not hide behind its own values; a single row has no others.
    others = of_row.sum(axis=0) - of_row if rows > 1 else of_row
    below = np.cumsum(others, axis=1) - others / 2
    count = np.maximum(others.sum(axis=1, keepdims=True), 1)
    worth = _normal_quantile(np.clip(below / count, 0.5 / count, 1 - 0.5 / count))
    return np.where(known, np.minimum(np.clip(distance, -_CLIP, _CLIP), worth.reshape(-1)[flat]), 0.0)


def _normal_quantile(share: Floats) -> Floats:
    """The value below which a normal variable is with that probability (from a table, to two digits)."""
    levels = np.linspace(-5, 5, 2001)
    density = np.exp(-levels * levels / 2)
    below = np.cumsum(density)
    return np.interp(share, (below - density / 2) / below[-1], levels)


def _candidates(z: Floats, beyond: Bools) -> Int64s:
    """The rows worth a closer look: by the best stretch of any length, and by single steps."""
    sums = np.vstack([np.zeros((1, z.shape[1])), np.cumsum(z, axis=0)])
    best = np.zeros(z.shape[1])
    length = 1
    while length < len(z):
        best = np.maximum(best, ((sums[length:] - sums[:-length]) / length**0.5).max(axis=0))
        length *= 2
    best = np.maximum(best, sums[-1] / len(z) ** 0.5)
    score = np.maximum(best, 2 * np.sqrt(beyond.sum(axis=0)))
    return np.argsort(-score, kind="stable")[:_MOST_CANDIDATES].astype(np.int64)


def _stretch(z: Floats, excess: Floats, rows: int) -> Incident | None:
    """The stretch of steps with the most evidence."""
    sums = np.concatenate([[0.0], np.cumsum(z)])
    coarse = np.unique(np.linspace(0, len(z), min(len(z), _MOST_BOUNDS) + 1).astype(np.int64))
    begin, end, gain = _best_stretch(sums, coarse, coarse)
    if len(coarse) <= len(z):
        # Between the places that were tried first.
        apart = -(-len(z) // _MOST_BOUNDS)
        begins, ends = (np.arange(max(one - apart, 0), min(one + apart, len(z)) + 1) for one in (begin, end))
        begin, end, gain = _best_stretch(sums, begins, ends)
    evidence = gain - log(max(len(z), 2) ** 1.5 * rows) - _LEAST_EVIDENCE
    if evidence <= 0:
        return None
    inside = np.arange(begin, end)
    known = inside[np.isfinite(excess[inside])]
    # A stretch that is carried by few of its steps is not one: most of them must be larger than usual.
    if len(known) < 3 or float(np.mean(excess[known] > 0)) < 0.75:
        return None
    return Incident(0, known, float(np.median(excess[known])), evidence, "stretch", None)


def _best_stretch(sums: Floats, begins: Int64s, ends: Int64s) -> tuple[int, int, float]:
    """Begin, end and evidence of the best stretch of more than two steps between some places."""
    size = ends[None, :] - begins[:, None]
    total = sums[ends][None, :] - sums[begins][:, None]
    gain = np.where((size > 2) & (total > 0), total * total / (2 * np.maximum(size, 1)), 0.0)
    begin, end = np.unravel_index(int(gain.argmax()), gain.shape)
    return int(begins[begin]), int(ends[end]), float(gain.max())


def _combs(z: Floats, excess: Floats, rows: int) -> list[Incident | None]:
    """For each of some rows the period and phase with the most evidence, from some step on."""
    steps, width = z.shape
    longest = min(steps // 3, _MOST_PERIOD)
    best = np.zeros(width)
    chosen = np.zeros((3, width), dtype=np.int64)  # period, phase, first round
    for period in range(2, longest + 1):
        rounds = -(-steps // period)
        padded = np.zeros((rounds * period, width))
        padded[:steps] = z
        # The sum from each round to the last, and how many rounds those are.
        sums = np.cumsum(padded.reshape(rounds, period, width)[::-1], axis=0)[2:].clip(0)
        gain = (sums * sums / (2 * np.arange(3, rounds + 1)[:, None, None])).reshape(-1, width)
        place = gain.argmax(axis=0)
        most = gain[place, np.arange(width)]
        # What one period explains, its multiples explain in part: a longer one has to be better by more than chance.
        better = most > best * 1.05
        last, phase = np.divmod(place, period)
        best = np.where(better, most, best)
        chosen = np.where(better, [np.full(width, period), phase, rounds - 3 - last], chosen)
    price = log(max(longest * steps / 2 * rows, 1)) + _LEAST_EVIDENCE
    return [
        _comb(excess[:, row], float(best[row]) - price, *chosen[:, row].tolist()) if best[row] > price else None
        for row in range(width)
    ]


def _comb(excess: Floats, evidence: float, period: int, phase: int, first: int) -> Incident | None:
    """The comb, if it is one: most teeth are high, and most of what lies between is not, or it is a stretch."""
    teeth = np.arange(phase, len(excess), period)
    inside = float(np.nanmedian(excess[teeth[first:]])) if np.isfinite(excess[teeth[first:]]).any() else np.inf
    # A first tooth that is no higher than half of the others may bring no evidence, but it is one.
    while first > 0 and excess[teeth[first - 1]] > inside / 2:
        first -= 1
    teeth = teeth[first:]
    teeth = teeth[np.isfinite(excess[teeth])]
    between = np.setdiff1d(np.flatnonzero(np.isfinite(excess)), teeth)
    if len(teeth) < 3 or not len(between):
        return None
    inside = float(np.median(excess[teeth]))
    if float(np.mean(excess[teeth] > inside / 3)) < 0.75 or float(np.mean(excess[between] > inside / 2)) > 0.2:
        return None
    return Incident(0, teeth, inside, evidence, "comb", period)


def _recurring(excess: Floats, beyond: Bools, row: int, total: float) -> Incident | None:
    """Single steps far beyond the spread, if they are more than the other rows have, or cost a share of the time."""
    steps = np.flatnonzero(beyond[:, row])
    if len(steps) < _RECURS:
        return None
    by_size = steps[np.argsort(-excess[steps, row], kind="stable")]
    # Rows that are late in the same steps may have the same cause (a host): they do not say what is usual.
    elsewhere = np.setdiff1d(np.flatnonzero(beyond.any(axis=1)), steps)
    others = np.delete(np.where(beyond[elsewhere], excess[elsewhere], 0.0), row, axis=1)
    chances = {}
    for count in sorted(
        {*range(_RECURS, min(len(by_size), 6) + 1), *(len(by_size) * part // 8 for part in range(1, 9))}
        - set(range(_RECURS))
    ):
        chances[count] = _chance(excess, others, np.sort(by_size[:count]), float(excess[by_size[count - 1], row]))
    count = min(chances, key=lambda one: chances[one])
    chance = chances[count] * excess.shape[1] * len(chances)
    chosen = np.sort(by_size[:count])
    lost = float(excess[chosen, row].sum())
    if chance > _CHANCE:
        return None
    evidence = max(-log(max(chance, 1e-300)), lost / max(total, 1.0) * 100)
    return Incident(0, chosen, float(np.median(excess[chosen, row])), evidence, "single", period_of(chosen))


def _chance(excess: Floats, others: Floats, steps: Int64s, size: float) -> float:
    """How likely a row has so many steps of that size by chance, as often as they happen to the others."""
    alike = np.sort((others >= 0.8 * size).sum(axis=0))
    if len(alike) > 2:
        alike = alike[:-1]  # one of the others may be at fault as well
    # Rows differ in how often it happens to them; none having any says only that it is rarer than one among them.
    usual = (float(alike.sum()) + 1.0) / max(len(alike), 1) + (float(alike.std()) if len(alike) else 0.0)
    return _at_least(len(steps), usual) * _chance_of_period(steps, len(excess))


def _chance_of_period(steps: Int64s, of: int) -> float:
    """How likely steps that fall anywhere recur as regularly as these; 1 if they do not.

    What recurs in steps has equal distances: of all choices of so many steps few lie on a grid. What recurs in time is
    a step early or late.
    """
    distances = np.diff(steps)
    period = period_of(steps)
    if period is not None:
        places = int((steps[-1] - steps[0]) // period) + 1
        grids = 2 * log(of) - log(2 * (places - 1))
        return min(1.0, exp(grids + _log_choices(places - 2, len(steps) - 2) - _log_choices(of, len(steps))))
    usual = float(np.median(distances))
    off = max(1.0, 0.1 * usual)
    alike = int((np.abs(distances - usual) <= off).sum())
    if usual <= 1 or alike < 0.75 * len(distances):
        return 1.0
    return float(min(1.0, (2 * off + 1) * len(steps) / of) ** (alike - 1))


def _log_choices(among: int, count: int) -> float:
    """The logarithm of in how many ways so many can be chosen."""
    return lgamma(among + 1) - lgamma(count + 1) - lgamma(among - count + 1)


def _at_least(count: int, rate: float) -> float:
    """The probability that a Poisson variable is at least `count`."""
    below = sum(exp(k * log(rate) - rate - lgamma(k + 1)) for k in range(count))
    return max(0.0, 1.0 - below) or exp(count * log(rate) - rate - lgamma(count + 1))


def period_of(steps: Int64s) -> int | None:
    """The period of steps that recur: all distances are multiples of it, most are it; None if there is none."""
    if len(steps) < 3:
        return None
    distances = np.diff(steps)
    period = int(np.median(distances))
    whole = np.all(distances % period == 0) if period > 1 else False
    return period if whole and float(np.mean(distances == period)) >= 0.6 else None
