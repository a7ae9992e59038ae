"""Comparison: the own work of each rank against that of its peers, and how much healthy ranks differ."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.evidence import Matrix
from ingero_mcp.analysis.first_calls import FIRST_CALL
from ingero_mcp.analysis.incidents import BEYOND
from ingero_mcp.analysis.outliers import MAD_TO_SIGMA
from ingero_mcp.analysis.robust import median_of_columns, spread
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.work import LATENESS

MATERIAL: Final = 0.005
"""An excess smaller than this share of a step is none, however small the spread."""

_ALIKE: Final = 1.5  # so much larger the spread of one role may be than that of another
_ENOUGH: Final = 200_000  # cells, to take a spread from
_FEW: Final = 4  # peers from which on they tell how much healthy ranks differ for good


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Every rank against its peers: `excess_ns[step, rank]`, and what was typical.

    `sigma_ns` is the spread of a healthy rank around its peers, by role; `least_ns` the smallest excess that counts;
    `step_ns` the typical duration of a step.
    """

    matrix: Matrix
    excess_ns: Floats
    sigma_ns: dict[int, float]
    least_ns: float
    step_ns: float


def compare(matrix: Matrix, roles: Roles, steps: Steps) -> Comparison:
    """Own work of each rank minus the (lower) median of the ranks of its role."""
    values = matrix.values
    excess = np.full(values.shape, np.nan)
    sigma: dict[int, float] = {}
    durations = steps.duration_ns[np.isfinite(steps.duration_ns)]
    step_ns = float(np.median(durations)) if len(durations) else float(np.nanmedian(values))
    for role in roles.all:
        mine = np.array([place for place, rank in enumerate(matrix.ranks.tolist()) if roles.of_rank.get(rank) == role])
        if len(mine):
            excess[:, mine], sigma[role] = _against_peers(values[:, mine])
    return Comparison(matrix, excess, _shared(sigma, matrix, roles), MATERIAL * step_ns, step_ns)


def _shared(sigma: dict[int, float], matrix: Matrix, roles: Roles) -> dict[int, float]:
    """The spreads, where a role has few ranks no larger than those of other roles are for their work.

    A rank at fault among two or three hides the spread of its role.
    """
    work = {role: float(np.nanmedian(matrix.values[:, np.isin(matrix.ranks, roles.ranks(role))])) for role in sigma}
    shares = sorted(sigma[role] / work[role] for role in sigma if work[role] > 0)
    if len(shares) < 2:
        return sigma
    usual = shares[(len(shares) - 1) // 2]
    return {
        role: min(one, _ALIKE * usual * work[role]) if work[role] > 0 and len(roles.ranks(role)) < _FEW else one
        for role, one in sigma.items()
    }


def _against_peers(values: Floats) -> tuple[Floats, float]:
    """Excess over the peers, zero in the mean for a healthy rank, and its spread."""
    ranks = values.shape[1]
    if ranks == 1:
        # Without peers there is only the rank's own past to compare with.
        usual = (
            np.full(len(values), np.nanmedian(values)) if np.isfinite(values).any() else np.full(len(values), np.nan)
        )
        own = values - usual[:, None]
        return own, spread(own)
    excess: Floats = values - lower_median(values)[:, None]
    sigma = noise(values)
    if ranks == 2:
        # The larger of two is above the smaller by 1.13 spreads in the mean, half of the time each.
        return excess - 0.564 * sigma, 1.42 * sigma
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        typical = median_of_columns(excess)
    # Healthy ranks differ a little for good; what is typical of the role's ranks is not an excess. Half of them may be
    # at fault, so the others tell.
    center = float(lower_median(typical[None])[0])
    below = center - typical[typical < center]
    between = MAD_TO_SIGMA * float(np.median(below)) if ranks >= _FEW and len(below) else 0.0
    return excess - center, float(np.hypot(1.1 * sigma, between))


def lower_median(values: Floats) -> Floats:
    """The median of each row, the lower of the two in the middle, NaN ignored: half of the ranks may be at fault."""
    ordered = np.sort(values, axis=1)  # NaN comes last
    known = np.isfinite(values).sum(axis=1)
    middle = np.maximum(known - 1, 0) // 2
    return np.asarray(ordered[np.arange(len(values)), middle])


def noise(values: Floats) -> float:
    """How much the work of a healthy rank varies from step to step beside that of its peers; faults left aside.

    Taken from differences between pairs: unlike distances from a median they are no smaller for few ranks. The pairs
    are far apart, since ranks that are next to each other may share a replica and with it their batches.
    """
    values = values[:: max(1, values.size // _ENOUGH)]
    ranks = values.shape[1]
    half = max(ranks // 2, 1)
    # Of an even number of ranks the second half of the pairs is the first one again.
    pairs = half if ranks % 2 == 0 else ranks
    apart = values[:, (np.arange(pairs) + half) % ranks] - values[:, :pairs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        around = spread(apart - median_of_columns(apart))
    if ranks > 2:
        return around / 2**0.5
    # If one of two is at fault in half of the steps, the middle lies between both halves: from step to step it shows.
    return min(around, spread(np.diff(apart, axis=0)) / 2**0.5) / 2**0.5


def with_past(comparison: Comparison, roles: Roles, hosts: Mapping[int, str]) -> Comparison:
    """The comparison, for roles that are (or may be) at home on one host also with their own past.

    If that host is slow for a while, all peers are. It shows in steps in which the whole role worked longer than it
    usually does, while the ranks of other hosts did not.
    """
    matrix = comparison.matrix
    if matrix.measures in (LATENESS, FIRST_CALL):
        return comparison  # if one stage is late, the others are not, so that they do not tell what is usual
    excess = comparison.excess_ns.copy()
    names = np.array([hosts.get(rank, "") for rank in matrix.ranks.tolist()])
    for role in roles.all:
        mine = np.isin(matrix.ranks, roles.ranks(role))
        if not mine.any():
            continue
        home, count = np.unique(names[mine], return_counts=True)
        # Where nodes are not known the ranks of a role may well share one.
        elsewhere = (names != home[count.argmax()]) & (names != "") if hosts else ~mine
        if count.max() <= mine.sum() / 2 or not elsewhere.any() or (hosts and not home[count.argmax()]):
            continue
        usual = median_of_columns(matrix.values)
        with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            common = lower_median(matrix.values[:, elsewhere] / usual[elsewhere])
            above = lower_median(matrix.values[:, mine] - common[:, None] * usual[mine])
        late = above > BEYOND * spread(above)
        excess[np.ix_(late, mine)] += above[late][:, None]
    return replace(comparison, excess_ns=excess)
