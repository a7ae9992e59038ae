"""Stragglers: ranks that take longer for their own work than their peers do.

"Own work minus the median of same-role peers", per step; what stands out of the spread of the job, persistently or
again and again, is a finding. On the one public labelled straggler trace this names the right rank in 44 of 44 steps,
while "who entered the all-reduce last" names another stage in all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.evidence import Evidence, Matrix
from ingero_mcp.analysis.incidents import (
    BEYOND,
    FOR_GOOD,
    Incident,
    find_incidents,
    median_of_columns,
    period_of,
    spread,
)
from ingero_mcp.analysis.outliers import MAD_TO_SIGMA
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.steps import Steps

MATERIAL: Final = 0.005
"""An excess smaller than this share of a step is none, however small the spread."""

_ALIKE: Final = 1.5  # so much larger the spread of one role may be than that of another
_ENOUGH: Final = 200_000  # cells, to take a spread from
_FEW: Final = 4  # peers from which on they tell how much healthy ranks differ for good


@dataclass(frozen=True, slots=True, eq=False)
class Straggler:
    """A rank and the steps in which it was late, by place in the comparison and by number.

    `excess_ns[s]` is its own work above its peers' in every step.
    """

    rank: int
    steps: Int64s
    numbers: Int64s
    excess_ns: Floats
    lateness_ns: float
    lost_ns: float
    evidence: float
    period: int | None


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
        return spread(apart - median_of_columns(apart)) / 2**0.5


def find_stragglers(comparison: Comparison, roles: Roles, hosts: Mapping[int, str]) -> tuple[Straggler, ...]:
    """The ranks at fault, the costliest first; `hosts` are the nodes of the ranks whose node is known."""
    comparison = _with_past(comparison, roles, hosts)
    ranks = comparison.matrix.ranks.tolist()
    floor = 1e-4 * comparison.step_ns
    sigma = np.array([max(comparison.sigma_ns.get(roles.of_rank.get(rank, -1), 0.0), floor) for rank in ranks])
    total = comparison.step_ns * len(comparison.matrix.steps)
    least = np.maximum(comparison.least_ns, FOR_GOOD * sigma)
    incidents = find_incidents(comparison.excess_ns, sigma, least, total)
    found = {ranks[incident.row]: _straggler(comparison, incident, ranks[incident.row]) for incident in incidents}
    for straggler in [*found.values(), *_of_hosts(comparison, sigma, hosts, total)]:
        for rank in _late_with(straggler, comparison, sigma, hosts):
            found.setdefault(rank, _in_steps(comparison, rank, straggler))
    return _without_echoes(tuple(sorted(found.values(), key=lambda one: -one.lost_ns)))


def _with_past(comparison: Comparison, roles: Roles, hosts: Mapping[int, str]) -> Comparison:
    """The comparison, for roles that are at home on one host also with their own past.

    If that host is slow for a while, all peers are. It shows in steps in which the whole role worked longer than it
    usually does, while the ranks of other hosts did not.
    """
    matrix = comparison.matrix
    excess = comparison.excess_ns.copy()
    names = np.array([hosts.get(rank, "") for rank in matrix.ranks.tolist()])
    for role in roles.all:
        mine = np.isin(matrix.ranks, roles.ranks(role))
        home, count = np.unique(names[mine], return_counts=True)
        elsewhere = (names != home[count.argmax()]) & (names != "") if len(home) else mine
        if not len(home) or not home[count.argmax()] or count.max() <= mine.sum() / 2 or not elsewhere.any():
            continue
        usual = median_of_columns(matrix.values)
        with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            common = lower_median(matrix.values[:, elsewhere] / usual[elsewhere])
            above = lower_median(matrix.values[:, mine] - common[:, None] * usual[mine])
        late = above > BEYOND * spread(above)
        excess[np.ix_(late, mine)] += above[late][:, None]
    return replace(comparison, excess_ns=excess)


def find_in_part(
    found: tuple[Straggler, ...], part: Comparison | None, roles: Roles, hosts: Mapping[int, str]
) -> tuple[Straggler, ...]:
    """Stragglers of the whole own work, and those that only a part of it shows, which varies less.

    The part has to have the same steps and ranks. Of a rank that both show the clearer account is kept.
    """
    if part is None:
        return found
    by_rank = {one.rank: one for one in found}
    for one in find_stragglers(part, roles, hosts):
        if one.rank not in by_rank or by_rank[one.rank].evidence < one.evidence:
            by_rank[one.rank] = one
    return _without_echoes(tuple(sorted(by_rank.values(), key=lambda one: -one.lost_ns)))


def _of_hosts(comparison: Comparison, sigma: Floats, hosts: Mapping[int, str], total: float) -> tuple[Straggler, ...]:
    """Incidents of whole hosts, which may be too small to be seen on one rank; each names the host's first rank."""
    ranks = comparison.matrix.ranks.tolist()
    names = sorted({hosts[rank] for rank in ranks if rank in hosts})
    members = [[place for place, rank in enumerate(ranks) if hosts.get(rank) == name] for name in names]
    if len(names) < 2 or min(map(len, members)) < 2:
        return ()
    # What happens to one of its ranks does not happen to the host.
    excess = np.stack([lower_median(comparison.excess_ns[:, mine]) for mine in members], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        excess -= np.nanmedian(excess)
        of_hosts = np.array([sigma[mine].mean() / len(mine) ** 0.5 for mine in members])
        # Ranks of a host share some of what happens to it, so that they vary more together than strangers do.
        of_hosts = np.maximum(of_hosts, spread(excess - median_of_columns(excess.T)[:, None]))
    # An incident of a host is one of each of its ranks.
    least = np.array([max(comparison.least_ns, FOR_GOOD * float(sigma[mine].mean())) for mine in members])
    incidents = find_incidents(excess, of_hosts, least, total)
    return tuple(_straggler(comparison, one, ranks[members[one.row][0]], excess[:, one.row]) for one in incidents)


def _late_with(
    straggler: Straggler, comparison: Comparison, sigma: Floats, hosts: Mapping[int, str]
) -> tuple[int, ...]:
    """The ranks that were late in the same steps, by a similar amount: those of the same host are asked for less."""
    ranks = comparison.matrix.ranks.tolist()
    inside = comparison.excess_ns[straggler.steps]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        typical = median_of_columns(inside)
        # The mean distance in spreads, and how far from chance that is; only a rank that is late at all is asked.
        certain = np.full(len(ranks), -np.inf)
        late = np.flatnonzero(typical > 0.3 * straggler.lateness_ns)
        distance = np.clip(inside[:, late] / sigma[late], -6, 6)
        certain[late] = np.nanmean(distance, axis=0) * len(straggler.steps) ** 0.5
    found = []
    for place, rank in enumerate(ranks):
        is_mate = rank in hosts and hosts[rank] == hosts.get(straggler.rank)
        share, surely = (0.3, 3.0) if is_mate else (0.5, 5.0)
        if certain[place] > surely and typical[place] > share * straggler.lateness_ns:
            found.append(rank)
    # What happens to most of the ranks happens to nobody.
    return tuple(found) if len(found) <= len(ranks) / 2 else ()


def _in_steps(comparison: Comparison, rank: int, other: Straggler) -> Straggler:
    """A rank in the steps in which another one was late."""
    excess = comparison.excess_ns[:, comparison.matrix.ranks == rank][:, 0]
    inside = excess[other.steps]
    inside = inside[np.isfinite(inside)]
    return replace(
        other,
        rank=rank,
        excess_ns=excess,
        lateness_ns=float(np.median(inside)),
        lost_ns=float(np.clip(inside, 0, None).sum()),
    )


def _straggler(comparison: Comparison, incident: Incident, rank: int, excess: Floats | None = None) -> Straggler:
    excess = comparison.excess_ns[:, incident.row] if excess is None else excess
    return Straggler(
        rank=rank,
        steps=incident.steps,
        numbers=comparison.matrix.steps[incident.steps],
        excess_ns=excess,
        lateness_ns=incident.excess,
        lost_ns=float(np.clip(excess[incident.steps], 0, None).sum()),
        evidence=incident.evidence,
        period=incident.period or period_of(incident.steps),
    )


def _without_echoes(found: tuple[Straggler, ...]) -> tuple[Straggler, ...]:
    """Without those that are late only where somebody else is, by a small part of it: they were held up."""
    kept: list[Straggler] = []
    for one in found:
        behind = [other for other in kept if _is_echo(one, other)]
        if not behind:
            kept.append(one)
    return tuple(kept)


def _is_echo(one: Straggler, other: Straggler) -> bool:
    shared = np.intersect1d(one.steps, other.steps)
    if len(shared) < 0.8 * len(one.steps):
        return False
    return bool(np.nanmedian(one.excess_ns[shared]) < 0.15 * np.nanmedian(other.excess_ns[shared]))


def incidents_of(found: tuple[Straggler, ...], evidence: Evidence) -> tuple[tuple[Straggler, ...], ...]:
    """Stragglers that are one incident together: ranks of one host late in the same steps, or ranks in turn."""
    groups: list[list[Straggler]] = []
    for one in found:
        together = next((group for group in groups if _together(one, group[0], evidence)), None)
        if together is None:
            groups.append([one])
        else:
            together.append(one)
    return tuple(tuple(group) for group in groups)


def _together(one: Straggler, other: Straggler, evidence: Evidence) -> bool:
    shared = len(np.intersect1d(one.steps, other.steps)) / min(len(one.steps), len(other.steps))
    alike = 0.25 * other.lateness_ns < one.lateness_ns < 4 * other.lateness_ns
    hosts = evidence.hosts
    if one.rank in hosts and hosts[one.rank] == hosts.get(other.rank):
        return shared >= 0.5 and alike
    if not hosts:
        # Where nodes are not known, ranks that are late in the same steps may well share one.
        return shared >= 0.7 and alike
    # In turn: each in steps of its own, by the same amount, as rarely as the other (garbage collection does that).
    rare = max(len(one.steps), len(other.steps)) < 0.2 * len(one.excess_ns)
    return alike and rare and shared < 0.3 and len(one.steps) > 1 and one.period == other.period


def without(comparison: Comparison, found: tuple[Straggler, ...]) -> Matrix:
    """The own work with that of stragglers left out in the steps in which they were late."""
    values = comparison.matrix.values.copy()
    for one in found:
        late = np.isin(comparison.matrix.steps, one.numbers)
        values[np.ix_(late, comparison.matrix.ranks == one.rank)] = np.nan
    return replace(comparison.matrix, values=values)


def late_steps(found: tuple[Straggler, ...], steps: int) -> Bools:
    """In which steps somebody was late."""
    late = np.zeros(steps, dtype=np.bool_)
    for one in found:
        late[one.steps] = True
    return late
