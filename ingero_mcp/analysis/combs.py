"""Combs: what comes every n-th step, or every so many seconds, from some step on."""

from __future__ import annotations

from math import ceil, log
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Floats, Int64s
from ingero_mcp.analysis.incident import Incident

_LEAST_EVIDENCE: Final = 3.5  # nats over the price of choosing: in healthy jobs one case in a hundred comes near
_MOST_PERIOD: Final = 128  # what recurs more rarely is found as single steps
_FEW_STEPS: Final = 400  # in more of them what recurs in time is found as single steps
_LEAST_IN_TIME: Final = 4  # steps


def find_combs(z: Floats, excess: Floats, rows: int) -> list[Incident | None]:
    """For each of some rows the period and phase with the most evidence, from some step on.

    What recurs in steps has a whole period; what recurs in time has any, and more of them are to be chosen among.
    """
    steps, width = z.shape
    longest = min(steps // 3, _MOST_PERIOD)
    found: list[Incident | None] = [None] * width
    for periods, apart in ((np.arange(2.0, longest + 1), 1.0), (_in_time(steps, longest), 0.5)):
        if not len(periods):
            continue
        price = log(max(len(periods) * steps / 2 / apart * rows, 1)) + _LEAST_EVIDENCE
        evidence, period, phase, first = _best_combs(z, periods, apart)
        for row in np.flatnonzero(evidence > price).tolist():
            net = float(evidence[row]) - price
            comb = _comb(excess[:, row], net, float(period[row]), float(phase[row]), int(first[row]))
            known = found[row]
            if comb is not None and (known is None or net > known.evidence):
                found[row] = comb
    return found


def _in_time(steps: int, longest: int) -> Floats:
    """Periods of what recurs in time, each as far from the next as moves the last of its teeth by a step."""
    if steps > _FEW_STEPS or longest < _LEAST_IN_TIME:
        return np.zeros(0)
    return np.asarray(_LEAST_IN_TIME * np.exp(np.arange(0, log(longest / _LEAST_IN_TIME), 1 / steps)))


def _best_combs(z: Floats, periods: Floats, apart: float) -> tuple[Floats, Floats, Floats, Int64s]:
    """The evidence of the best comb of each row, with its period, phase, and first round; phases are `apart`."""
    steps, width = z.shape
    padded = np.vstack([z, np.zeros(width)])
    best, phase_of_best, first_of_best = np.zeros(width), np.zeros(width), np.zeros(width, dtype=np.int64)
    period_of_best = np.full(width, periods[0])
    for period in periods.tolist():
        rounds, phases = ceil(steps / period), np.arange(0, period, apart)
        teeth = (np.arange(rounds)[:, None] * period + phases).astype(np.int64)
        # The sum from each round to the last, and how many rounds those are.
        sums = np.cumsum(padded[np.minimum(teeth, steps)][::-1], axis=0)[2:].clip(0)
        gain = (sums * sums / (2 * np.arange(3, rounds + 1)[:, None, None])).reshape(-1, width)
        place = gain.argmax(axis=0)
        most = gain[place, np.arange(width)]
        # What one period explains, its multiples explain in part: a longer one has to be better by more than chance.
        better = most > best * 1.05
        last, phase = np.divmod(place, len(phases))
        best[better], period_of_best[better] = most[better], period
        phase_of_best[better], first_of_best[better] = phases[phase[better]], (rounds - 3 - last)[better]
    return best, period_of_best, phase_of_best, first_of_best


def _comb(excess: Floats, evidence: float, period: float, phase: float, first: int) -> Incident | None:
    """The comb, if it is one: most teeth are high, and most of what lies between is not, or it is a stretch."""
    teeth = (phase + period * np.arange(ceil((len(excess) - phase) / period))).astype(np.int64)
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
    return Incident(0, teeth, inside, evidence, "comb", int(period) if period.is_integer() else None)
