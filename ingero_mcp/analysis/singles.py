"""Single steps that recur: how likely it is that they all fall on one row, and as regularly, by chance."""

from __future__ import annotations

from math import exp, lgamma, log
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.incident import Incident, period_of

_CHANCE: Final = 1e-3  # how likely it may be
_RECURS: Final = 3  # what happens less often is a hiccup, whatever it cost
_SURELY: Final = 0.01  # how much at most size alone may count: there are hiccups much larger than all that is usual

_FAR: Final = 20.0  # spreads
_MUCH: Final = 0.1  # of a step
_TOO_OFTEN: Final = 4  # times for chance, if nothing else ever comes near


def recurring(excess: Floats, beyond: Bools, row: int, total: float) -> Incident | None:
    """Single steps of a row far beyond the spread, if they are more than chance would have put there.

    `beyond[step, row]` says which values are beyond the spread, `total` is the time that all steps took.
    """
    steps = np.flatnonzero(beyond[:, row])
    if len(steps) < _RECURS:
        return None
    by_size = steps[np.argsort(-excess[steps, row], kind="stable")]
    # Rows that are late in the same steps may have the same cause (a host): they do not say what is usual.
    elsewhere = np.setdiff1d(np.flatnonzero(beyond.any(axis=1)), steps)
    others = np.delete(np.where(beyond[elsewhere], excess[elsewhere], 0.0), row, axis=1)
    counts, highest = _counts(len(by_size)), np.nan_to_num(np.fmax.reduce(excess, axis=1))
    chances = [
        _chance(others, np.sort(by_size[:count]), float(excess[by_size[count - 1], row]), highest) for count in counts
    ]
    # The counts are parts of each other, so that trying one more is worth less than a new try.
    chance = min(chances) * excess.shape[1] * (1 + log(len(counts)))
    if chance > _CHANCE:
        return None
    chosen = np.sort(by_size[: counts[int(np.argmin(chances))]])
    lost = float(excess[chosen, row].sum())
    evidence = max(-log(max(chance, 1e-300)), lost / max(total, 1.0) * 100)
    return Incident(row, chosen, float(np.median(excess[chosen, row])), evidence, "single", period_of(chosen))


def _counts(all_of_them: int) -> list[int]:
    """How many of the largest steps are asked about: the first few one by one, then by eighths."""
    few = range(_RECURS, min(all_of_them, 6) + 1)
    eighths = (all_of_them * part // 8 for part in range(1, 9))
    return sorted({*few, *(count for count in eighths if count >= _RECURS)})


def _chance(others: Floats, steps: Int64s, size: float, highest: Floats) -> float:
    """How likely a row has these of its largest steps by chance, of all of at least that size that any row has.

    `others` are such values of the other rows, `highest` is the largest value of every step.
    """
    alike = np.sort((others >= 0.8 * size).sum(axis=0))
    if len(alike) > 2:
        alike = alike[:-1]  # one of the others may be at fault as well
    usual = float(alike.mean()) if len(alike) else 0.0
    # Each falls on any of the rows; it happens to some rows more often than to others.
    share = (1 + (float(alike.std()) / usual if usual else 0.0)) / (len(alike) + 1)
    here = _at_least(len(steps), len(steps) + int(alike.sum()), min(share, 0.9))
    next_largest = float(np.delete(highest, steps).max(initial=0.0))
    return here * _chance_of_period(steps, len(highest)) * _chance_of_size(len(steps), size, next_largest)


def _chance_of_size(count: int, size: float, next_largest: float) -> float:
    """How likely so many of the largest values are so far above the next one, even if tails are as heavy as a tail with
    a mean can be: beyond any value, one in two is twice as large.
    """
    return max(min(1.0, next_largest / size) ** count, _SURELY)


def unmatched(excess: Floats, sigma: float, row: int, total: float) -> Incident | None:
    """Steps so far beyond everything else that counting them says less than their size does: in short recordings.

    `sigma` is the spread of the row.
    """
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


def _at_least(count: int, of: int, share: float) -> float:
    """The probability that a binomial variable is at least `count`."""
    logs = [_log_choices(of, k) + k * log(share) + (of - k) * log(1 - share) for k in range(count, of + 1)]
    return min(1.0, sum(exp(one) for one in logs))
