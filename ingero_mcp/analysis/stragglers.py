"""Stragglers: ranks that take longer for their own work than their peers do.

"Own work minus the median of same-role peers", per step; what stands out of the spread of the job, persistently or
again and again, is a finding. On the one public labelled straggler trace this names the right rank in 44 of 44 steps,
while "who entered the all-reduce last" names another stage in all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ingero_mcp.analysis.calls import Floats, Int64s
from ingero_mcp.analysis.comparison import Comparison, lower_median, with_past
from ingero_mcp.analysis.evidence import Evidence, Matrix
from ingero_mcp.analysis.incident import Incident, period_of
from ingero_mcp.analysis.incidents import FOR_GOOD, find_incidents
from ingero_mcp.analysis.robust import median_of_columns, spread
from ingero_mcp.analysis.roles import Roles


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


def find_stragglers(comparison: Comparison, roles: Roles, hosts: Mapping[int, str]) -> tuple[Straggler, ...]:
    """The ranks at fault, the costliest first; `hosts` are the nodes of the ranks whose node is known."""
    comparison = with_past(comparison, roles, hosts)
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
    return tuple(part for group in groups for part in _parts(group, evidence.hosts))


def _parts(group: list[Straggler], hosts: Mapping[int, str]) -> list[tuple[Straggler, ...]]:
    """A group as one incident; two ranks of different hosts that share no period and no steps are two."""
    one, other = group[0], group[-1]
    apart = len(group) == 2 and hosts.get(one.rank) != hosts.get(other.rank) and one.period is None
    return [(one,), (other,)] if apart else [tuple(group)]


def _together(one: Straggler, other: Straggler, evidence: Evidence) -> bool:
    shared = len(np.intersect1d(one.steps, other.steps)) / min(len(one.steps), len(other.steps))
    alike = 0.25 * other.lateness_ns < one.lateness_ns < 4 * other.lateness_ns
    hosts = evidence.hosts
    if one.rank in hosts and hosts[one.rank] == hosts.get(other.rank):
        return shared >= 0.5 and alike
    if not hosts and shared >= 0.7:
        # Where nodes are not known, ranks that are late in the same steps may well share one.
        return alike
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
