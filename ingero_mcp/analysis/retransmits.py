"""Retransmits: hosts on which TCP repeats itself much more than usual, at both ends of a path, while steps are longer.

It is what tells a slow network from a slow GPU where only the hosts' side of the collectives is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import log
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Bools, Floats
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Affected, Finding, Group, Statement
from ingero_mcp.analysis.robust import spread
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.words import duration_text, listed

NAMES: Final = ("tcp.retransmit", "tcp_retransmit")
"""What the events are called; the first is the kind of the signs that are made of them."""

_OFTEN: Final = 4.0  # times the usual rate
_LEAST_STEPS: Final = 5  # one burst is none
_MOST_PER_STEP: Final = 8  # a burst counts no more
_EVIDENCE: Final = 9.0  # nats over the price of choosing
_PLACES: Final = 64
_MOST_HOSTS: Final = 12  # the busiest, of which pairs are tried
_SURE: Final = 1.0  # standard errors by which the steps have to be longer: the counts are the proof, this must agree


@dataclass(frozen=True, slots=True, eq=False)
class Retransmits:
    """The hosts at the ends, the steps in which they repeated themselves, and how often per step there and elsewhere.

    `longer_ns` is by how much these steps are longer.
    """

    hosts: tuple[str, ...]
    steps: Bools
    often: float
    usual: float
    longer_ns: float
    event_ids: tuple[str, ...]


def find_retransmits(evidence: Evidence, steps: Steps) -> Retransmits | None:
    """Two hosts or more that repeat themselves in the same steps, if those steps are longer; None if there are none."""
    hosts, counts = _counts(evidence, steps)
    if len(hosts) < 2 or len(steps) < 2 * _LEAST_STEPS:
        return None
    capped = np.minimum(counts, _MOST_PER_STEP)
    found = _busiest_pair(capped)
    if found is None:
        return None
    pair, stretch = found
    inside = capped[stretch].mean(axis=0)
    ends = np.flatnonzero((inside >= 0.5 * inside[pair].min()) & _is_often(capped, stretch)).tolist()
    high = _busy(capped[:, ends].sum(axis=1), stretch)
    longer = _longer(steps.duration_ns, high)
    if longer is None:
        return None
    names = tuple(hosts[place] for place in ends)
    ids = tuple(s.event_id for s in evidence.signs if s.kind == NAMES[0] and s.node_id in names)
    often, usual = float(counts[high][:, ends].mean()), float(counts[~high].mean())
    return Retransmits(names, high, often, usual, longer, ids[:4])


def _counts(evidence: Evidence, steps: Steps) -> tuple[tuple[str, ...], Floats]:
    """The retransmits of each step and host, on the host's clock; `[step, host]`."""
    signs = [sign for sign in evidence.signs if sign.kind == NAMES[0]]
    hosts = tuple(sorted(set(evidence.hosts.values())))
    counts = np.zeros((len(steps), len(hosts)))
    if not signs:
        return (), counts
    calls = evidence.calls
    time = np.where(calls.done_ns != UNKNOWN, calls.done_ns, calls.enter_ns)
    number = {host: place for place, host in enumerate(hosts)}
    of_rank = np.full(int(calls.rank.max(initial=0)) + 1, UNKNOWN)
    for rank, host in evidence.hosts.items():
        if rank < len(of_rank):
            of_rank[rank] = number[host]
    for place, host in enumerate(hosts):
        mine = np.flatnonzero((of_rank[calls.rank] == place) & (steps.of_call != UNKNOWN))
        end = np.zeros(len(steps), dtype=np.int64)
        np.maximum.at(end, steps.of_call[mine], time[mine])
        end = np.maximum.accumulate(end)
        ours = [sign for sign in signs if sign.node_id == host]
        at = np.array([sign.at_ns for sign in ours], dtype=np.int64)
        step = np.searchsorted(end, at)
        inside = step < len(steps)
        weight = np.array([sign.value if sign.value is not None else 1.0 for sign in ours])
        np.add.at(counts[:, place], step[inside], weight[inside])
    return hosts, counts


def _busiest_pair(counts: Floats) -> tuple[list[int], Bools] | None:
    """The two ends, and the stretch of steps, with the most evidence that both repeat themselves more than usual."""
    busiest = np.argsort(-counts.sum(axis=0), kind="stable")[:_MOST_HOSTS].tolist()
    best: tuple[float, list[int], Bools] | None = None
    for one, other in combinations(busiest, 2):
        found = _stretch(counts[:, one] + counts[:, other], len(busiest) * (len(busiest) - 1) // 2)
        if found is None or (best is not None and found[0] <= best[0]):
            continue
        both = [one, other]
        if _is_often(counts, found[1])[both].all():
            best = found[0], both, found[1]
    return (best[1], best[2]) if best else None


def _is_often(counts: Floats, stretch: Bools) -> Bools:
    """Which hosts repeat themselves in several of these steps, and much more often than in the others."""
    inside, outside = counts[stretch], counts[~stretch]
    rate = (outside.sum(axis=0) + 0.5) / len(outside)
    is_steady = (inside > 0).sum(axis=0) >= _LEAST_STEPS
    return np.asarray(is_steady & (inside.mean(axis=0) >= _OFTEN * rate))


def _stretch(counts: Floats, choices: int) -> tuple[float, Bools] | None:
    """The stretch of steps in which they are most surely more frequent than outside; None if chance explains it.

    The evidence is the logarithm of the likelihood ratio of two Poisson rates to one, less the price of choosing.
    """
    steps, total = len(counts), float(counts.sum())
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    bounds = np.unique(np.linspace(0, steps, min(steps, _PLACES) + 1).astype(np.int64))
    first, last = (bounds[index] for index in np.triu_indices(len(bounds), 1))
    length = (last - first).astype(np.float64)
    few = (length >= _LEAST_STEPS) & (steps - length >= _LEAST_STEPS)
    first, last, length = first[few], last[few], length[few]
    inside = sums[last] - sums[first]
    # Half an event more outside, as none at all in a few steps says little.
    outside = total - inside + 0.5
    rate = (total + 0.5) / steps
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = inside * np.log(np.maximum(inside / length, 1e-9) / rate)
        gain += outside * np.log(outside / (steps - length) / rate)
    gain = np.where(inside / length > outside / (steps - length), gain, 0.0)
    evidence = float(gain.max(initial=0.0)) - log(max(len(gain), 1) * choices) - _EVIDENCE
    if evidence <= 0:
        return None
    best = int(gain.argmax())
    stretch = np.zeros(steps, dtype=np.bool_)
    stretch[first[best] : last[best]] = True
    return evidence, stretch


def _busy(counts: Floats, stretch: Bools) -> Bools:
    """The steps of the stretch with such events in them or beside them: a path that comes and goes is quiet between."""
    near = np.convolve(counts, np.ones(3), mode="same")
    return stretch & (near > 0.5 * float(near[stretch].mean()))


def _longer(duration_ns: Floats, high: Bools) -> float | None:
    """By how much the steps are longer, None if they are not."""
    known = np.isfinite(duration_ns)
    inside, outside = duration_ns[high & known], duration_ns[~high & known]
    if len(inside) < _LEAST_STEPS or len(outside) < _LEAST_STEPS:
        return None
    difference = float(np.median(inside) - np.median(outside))
    error = 1.25 * float(np.hypot(spread(inside) / len(inside) ** 0.5, spread(outside) / len(outside) ** 0.5))
    return difference if difference > _SURE * error else None


def lossy_network(evidence: Evidence, steps: Steps, found: Retransmits) -> Finding:
    """What is to be said of them."""
    numbers = steps.numbers[found.steps]
    ranks = tuple(sorted(rank for rank, host in evidence.hosts.items() if host in found.hosts))
    group = Group("link", " - ".join(found.hosts), ranks)
    durations = steps.duration_ns[np.isfinite(steps.duration_ns)]
    hosts = listed(found.hosts)
    return Finding(
        "network",
        "network",
        0.75 if len(found.hosts) == 2 else 0.6,
        (
            Statement(
                f"TCP on {hosts} sends again {found.often:.2g} times per step, else {found.usual:.2g} times",
                found.often,
                "per step",
                found.event_ids,
            ),
            Statement(f"these steps are longer by {duration_text(found.longer_ns)}", found.longer_ns / 1e6, "ms"),
        ),
        groups=(group,) if len(found.hosts) == 2 else tuple(_host(evidence, host) for host in found.hosts),
        alternatives=(("gpu_throttle", 0.1),),
        waiting_ranks=tuple(sorted(evidence.places)),
        affected=Affected(tuple(numbers.tolist()), len(steps)),
        onset_step=int(numbers[0]),
        baseline_step_ns=float(np.median(durations)),
        lost_ns=found.longer_ns * len(numbers),
        summary=(
            f"The network between {hosts} loses packets from step {int(numbers[0])} on, and steps are longer for it.",
            "No rank stands out: all of them wait equally long.",
            "Look at link errors and the path between these hosts.",
        ),
    )


def _host(evidence: Evidence, host: str) -> Group:
    return Group("host", host, tuple(sorted(rank for rank, name in evidence.hosts.items() if name == host)))
