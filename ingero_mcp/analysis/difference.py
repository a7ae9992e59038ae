"""Difference: what changed between two recordings of a job, per rank and stage: before and after, good and bad.

Compared is the own work of a rank in a step, by its mean: what happens every n-th step moves it, and the median not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.evidence import Matrix
from ingero_mcp.analysis.robust import spread
from ingero_mcp.analysis.verdict import Diagnosis

_BEYOND: Final = 4.0  # standard errors from which a change is none of chance
_MATERIAL: Final = 0.005  # of a step
_FEWEST: Final = 4  # steps
_HICCUPS: Final = 2


@dataclass(frozen=True, slots=True)
class Change:
    """Mean own work in a step before and after, in nanoseconds; `is_real` if it is more than chance and material."""

    name: int
    before_ns: float
    after_ns: float
    is_real: bool

    @property
    def change_ns(self) -> float:
        """By how much it became longer."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True, slots=True)
class Difference:
    """Steps by their mean duration, ranks and stages by their own work, those that changed most first.

    `measures` says what was compared; where both were not measured alike it is empty, and so are `ranks` and `stages`.
    `missing` are ranks of before that are not there after, `added` the other way round.
    """

    before_step_ns: float
    after_step_ns: float
    measures: str
    ranks: tuple[Change, ...]
    stages: tuple[Change, ...]
    missing: tuple[int, ...]
    added: tuple[int, ...]


def difference(before: Diagnosis, after: Diagnosis) -> Difference:
    """What changed from one recording to another."""
    # Not the comparisons that told who is late: each is of what was measured best there.
    one, other = before.own_work, after.own_work
    steps = _mean_step(before), _mean_step(after)
    if one is None or other is None or one.measures != other.measures:
        return Difference(*steps, "", (), (), (), ())
    known, now = set(one.ranks.tolist()), set(other.ranks.tolist())
    least = _MATERIAL * min(step for step in steps if np.isfinite(step)) if np.isfinite(steps).any() else 0.0
    ranks = [_change(rank, _of(one, (rank,)), _of(other, (rank,)), least) for rank in sorted(known & now)]
    roles = before.roles
    stages = [
        _change(role, _of(one, roles.ranks(role)), _of(other, roles.ranks(role)), least)
        for role in (roles.all if len(roles.all) > 1 else ())
        if set(roles.ranks(role)) & known & now
    ]
    return Difference(
        *steps,
        one.measures,
        tuple(sorted((one for one in ranks if one is not None), key=lambda change: -abs(change.change_ns))),
        tuple(sorted((one for one in stages if one is not None), key=lambda change: -abs(change.change_ns))),
        tuple(sorted(known - now)),
        tuple(sorted(now - known)),
    )


def _mean_step(diagnosis: Diagnosis) -> float:
    known = diagnosis.steps.duration_ns[np.isfinite(diagnosis.steps.duration_ns)]
    return float(known.mean()) if len(known) else float("nan")


def _of(matrix: Matrix, ranks: tuple[int, ...]) -> Floats:
    """The own work of some ranks, one number for each step: their mean."""
    values = matrix.values[:, np.isin(matrix.ranks, ranks)]
    known = np.isfinite(values).any(axis=1)
    return np.asarray(np.nanmean(values[known], axis=1)) if known.any() else np.zeros(0)


def _change(name: int, before: Floats, after: Floats, least_ns: float) -> Change | None:
    if len(before) < _FEWEST or len(after) < _FEWEST:
        return None
    one, other = _without_hiccups(before), _without_hiccups(after)
    error = float(np.hypot(spread(one) / len(one) ** 0.5, spread(other) / len(other) ** 0.5))
    is_real = abs(float(other.mean() - one.mean())) > max(_BEYOND * error, least_ns)
    return Change(name, float(before.mean()), float(after.mean()), is_real)


def _without_hiccups(values: Floats) -> Floats:
    """The values, the largest two no larger than the third: what happens once or twice is no change."""
    return np.asarray(np.minimum(values, np.sort(values)[-_HICCUPS - 1]))
