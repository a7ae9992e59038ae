"""Expected steps: how long each step would have taken, told from what the ranks that are not at fault did in it.

Steps differ anyway: the whole job has a slow step now and then, and the slowest of the healthy ranks holds the others
up. A line through the steps that were not affected, from what the other ranks did to how long the step took, takes
that out (a control variate). It bends to no single step, since those that are far off weigh less.
"""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats
from ingero_mcp.analysis.robust import spread

_STEPS_EACH: Final = 6  # steps that were not affected, for each number that is fitted
_ROUNDS: Final = 12
_WEIGHS_LESS: Final = 2.0  # spreads
_RIDGE: Final = 0.5
_MOVED: Final = 3.0  # standard errors
_MEDIAN_ERROR: Final = 1.25  # of a median, beside that of a mean


def expected_steps(duration_ns: Floats, affected: Bools, others_ns: Floats) -> Floats | None:
    """The duration that each step would have had, in ns; None if too few steps tell what is usual.

    `others_ns[step, rank]` is what the ranks that are not at fault did themselves, NaN where that is not known.
    """
    known = np.isfinite(duration_ns)
    if (known & ~affected).sum() < _STEPS_EACH:
        return None
    columns = [one for one in _traits(others_ns) if _is_apart(one, known, affected)]
    columns = columns[: int((known & ~affected).sum()) // _STEPS_EACH - 1]
    usable = known & ~affected & np.all([np.isfinite(one) for one in columns] or [known], axis=0)
    if usable.sum() < _STEPS_EACH * (len(columns) + 1):
        columns, usable = [], known & ~affected
    table = np.stack([np.ones(len(duration_ns)), *(_standard(one, usable) for one in columns)], axis=1)
    return np.asarray(table @ _fit(table[usable], duration_ns[usable]))


def _traits(others_ns: Floats) -> list[Floats]:
    """What the ranks did in the middle, and what the one did that did most."""
    if not others_ns.shape[1]:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return [np.asarray(np.nanmedian(others_ns, axis=1)), np.asarray(np.nanmax(others_ns, axis=1))]


def _is_apart(column: Floats, known: Bools, affected: Bools) -> bool:
    """Whether it is the same in affected steps as in others: else it is part of what happened, not of what is usual."""
    inside, outside = (column[known & chosen & np.isfinite(column)] for chosen in (affected, ~affected))
    if not len(inside) or len(outside) < _STEPS_EACH:
        return False
    error = _MEDIAN_ERROR * spread(outside) / len(inside) ** 0.5
    return bool(abs(np.median(inside) - np.median(outside)) <= _MOVED * error)


def _standard(column: Floats, usable: Bools) -> Floats:
    center, scale = np.median(column[usable]), np.std(column[usable])
    return np.nan_to_num((column - center) / (scale or 1.0))


def _fit(table: Floats, duration_ns: Floats) -> Floats:
    """A line through the points, by least squares in which what is far off weighs less (Huber)."""
    ridge = _RIDGE * np.eye(table.shape[1])
    ridge[0, 0] = 0.0
    weight = np.ones(len(table))
    line: Floats = np.zeros(table.shape[1])
    for _ in range(_ROUNDS):
        weighted = table * weight[:, None]
        line = np.asarray(np.linalg.solve(table.T @ weighted + ridge, weighted.T @ duration_ns), dtype=np.float64)
        off = np.abs(duration_ns - table @ line)
        weight = np.minimum(1.0, _WEIGHS_LESS * (spread(duration_ns - table @ line) + 1) / np.maximum(off, 1e-9))
    return np.asarray(line)
