"""Incidents in a row of numbers: in which steps was this larger than it should be, and is that more than chance?

What is usual is taken from the numbers themselves (median and MAD), never from a constant in milliseconds. Three shapes
are looked for: a stretch (from an onset on, or for a while), a comb (what comes every so often), and single steps that
recur. A stretch or comb counts by the evidence for it (half the squared sum over the number of steps, in units of the
spread, which is the log of the likelihood ratio of a shifted mean), less what it costs to choose it among all such
shapes; single steps by how unlikely it is that they all fall on one row.
"""

from __future__ import annotations

import warnings
from math import log
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.combs import find_combs
from ingero_mcp.analysis.incident import Incident
from ingero_mcp.analysis.robust import median_of_columns
from ingero_mcp.analysis.singles import recurring, unmatched

BEYOND: Final = 3.0
"""Spreads from which a single step stands out."""

FOR_GOOD: Final = 1.25
"""Spreads by which healthy ranks may well differ from their peers for good."""

_CLIP: Final = 6.0  # a single wild step must not look like a stretch of bad ones
_LEAST_EVIDENCE: Final = 5.0  # nats over the price of choosing a stretch: less than one case in a hundred
_MOST_CANDIDATES: Final = 24  # rows that are looked at closely
_MOST_BOUNDS: Final = 256  # places that are tried first for the ends of a stretch
_PER_SPREAD: Final = 50  # how finely distances are counted


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
    combs = find_combs(z[:, candidates], excess[:, candidates], rows)
    for row, comb in zip(candidates.tolist(), combs, strict=True):
        shapes = [
            _stretch(z[:, row], excess[:, row], rows),
            comb,
            recurring(excess, beyond, row, total),
            unmatched(excess, float(sigma[row]), row, total),
        ]
        best = max((shape for shape in shapes if shape is not None), key=lambda one: one.evidence, default=None)
        if best is not None and best.excess >= least[row] and best.evidence > 0:
            found.append(Incident(row, best.steps, best.excess, best.evidence, best.shape, best.period))
    return tuple(found)


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
    if len(known) < 3 or float(np.mean(excess[known] > 0)) < 0.6:
        return None
    return Incident(0, known, float(np.median(excess[known])), evidence, "stretch", None)


def _best_stretch(sums: Floats, begins: Int64s, ends: Int64s) -> tuple[int, int, float]:
    """Begin, end and evidence of the best stretch of more than two steps between some places."""
    size = ends[None, :] - begins[:, None]
    total = sums[ends][None, :] - sums[begins][:, None]
    gain = np.where((size > 2) & (total > 0), total * total / (2 * np.maximum(size, 1)), 0.0)
    begin, end = np.unravel_index(int(gain.argmax()), gain.shape)
    return int(begins[begin]), int(ends[end]), float(gain.max())
