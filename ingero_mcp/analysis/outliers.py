"""Which node is unlike its peers: a robust ranking of the values of their series.

The yardstick is the median of the series of a cohort and their median absolute deviation (MAD), which a single bad one
cannot move. A node is as conspicuous as its most conspicuous series: one slow GPU of eight does not hide behind the
median of its own node. What cannot be known (two values, no spread) is said instead of computed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import Final, Literal

Direction = Literal["below", "above", "both"]

MAD_TO_SIGMA: Final = 1.4826
"""Makes the MAD of normally distributed values comparable to their standard deviation."""

CUTOFF: Final = 3.5
"""Robust distance from which a node is called an outlier (Iglewicz and Hoaglin 1993)."""

MATERIAL: Final = 0.01
"""A node that differs from its peers' median by a smaller share of it is none, however small the spread."""

MATERIAL_FEW: Final = 0.10
"""The same for fewer than `FEW` values, whose spread is only a rough guess."""

FEW: Final = 6

_CHANCE: Final = 0.05  # that a cohort of any size has an outlier by chance
_MOST_CAVEATS: Final = 8
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class NodeValue:
    """The value of one series of a node: what is typical for it, or its total.

    `samples` counts the finite samples behind it. `share_beyond` is the share of them past the threshold; of
    a total it is 1 or 0. Peers are the values of the same cluster, `cohort` and `kind`; `series` says which of its node
    this is, "" where the node has but one.
    """

    cluster_id: str
    node_id: str
    value: float
    samples: int
    share_beyond: float = 0.0
    cohort: str = ""
    kind: str = ""
    series: str = ""


@dataclass(frozen=True, slots=True)
class RankedNode:
    """A node among its peers, by its most conspicuous series `node`.

    `difference` is the value minus `peer_median`; `distance` the same in robust standard deviations, None
    where the peers have no spread or there are too few of them. `is_outlier` is the conclusion; `odd` of `series` are
    outliers.
    """

    node: NodeValue
    peer_median: float | None
    difference: float | None
    distance: float | None
    is_outlier: bool
    odd: int = 0
    series: int = 1


@dataclass(frozen=True, slots=True)
class Ranking:
    """Nodes, the most conspicuous first; `caveats` are sentences on what the ranking cannot say."""

    nodes: tuple[RankedNode, ...]
    caveats: tuple[str, ...]


def rank_nodes(nodes: Sequence[NodeValue], direction: Direction, *, has_threshold: bool = False) -> Ranking:
    """Rank nodes by their distance from the series of the same cohort.

    With a threshold, nodes with samples past it are the outliers, by share of such samples. Without one, an
    outlier is at least `cutoff` away and materially different. `direction` says which side counts.

    >>> nodes = [NodeValue("c", f"n{i}", value, 10) for i, value in enumerate((0.91, 0.90, 0.30, 0.92))]
    >>> rank_nodes(nodes, "below").nodes[0].node.node_id
    'n2'
    """
    peers: dict[tuple[str, str, str], list[NodeValue]] = defaultdict(list)
    in_order = sorted(nodes, key=lambda one: (one.cluster_id, one.node_id, one.cohort, one.kind, one.series))
    for node in in_order:  # ties stay in this order
        peers[node.cluster_id, node.cohort, node.kind].append(node)
    ranked: list[RankedNode] = []
    caveats: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (cluster_id, cohort, kind), members in peers.items():
        ranked += _rank_cohort(members, direction, has_threshold)
        for caveat in _caveats(members):
            caveats[cluster_id, caveat].append(" ".join(filter(None, (cohort, kind))))
    said = [f"cluster {cluster_id}{_of(groups)}: {caveat}" for (cluster_id, caveat), groups in caveats.items()]
    more = [f"{len(said) - _MOST_CAVEATS} more of this sort"] if len(said) > _MOST_CAVEATS else []
    return Ranking(in_rank(ranked, direction), (*said[:_MOST_CAVEATS], *more))


def in_rank(ranked: Sequence[RankedNode], direction: Direction) -> tuple[RankedNode, ...]:
    """One entry per node and cohort, that of its most conspicuous series, the most conspicuous first."""
    first: dict[tuple[str, str, str], RankedNode] = {}
    odd: Counter[tuple[str, str, str]] = Counter()
    count: Counter[tuple[str, str, str]] = Counter()
    for entry in sorted(ranked, key=lambda entry: _conspicuousness(entry, direction), reverse=True):
        place = entry.node.cluster_id, entry.node.node_id, entry.node.cohort
        first.setdefault(place, entry)
        odd[place] += entry.is_outlier
        count[place] += 1
    return tuple(
        RankedNode(
            entry.node, entry.peer_median, entry.difference, entry.distance, entry.is_outlier, odd[place], count[place]
        )
        for place, entry in first.items()
    )


def cutoff(members: int) -> float:
    """Robust distance from which one of so many values is an outlier: more among hundreds, some of which are far."""
    return max(CUTOFF, NormalDist().inv_cdf(1 - _CHANCE / (2 * members)))


def _rank_cohort(members: list[NodeValue], direction: Direction, has_threshold: bool) -> list[RankedNode]:
    if len(members) < 3:
        # Of two either may be the odd one; alone, there is nothing to differ from.
        return [
            _compared(node, members[1 - place].value if len(members) == 2 else None, has_threshold)
            for place, node in enumerate(members)
        ]
    center, sigma = center_and_sigma([node.value for node in members])
    least = (MATERIAL if len(members) >= FEW else MATERIAL_FEW) * abs(center)
    far = cutoff(len(members))
    ranked = []
    for node in members:
        difference = node.value - center
        distance = difference / sigma if sigma > 0 else None
        is_far = distance is None or abs(distance) >= far
        is_material = difference != 0 and abs(difference) >= least
        is_outlier = is_far and is_material and _counts(difference, direction)
        if has_threshold:
            is_outlier = node.share_beyond > 0
        ranked.append(RankedNode(node, center, difference, distance, is_outlier))
    return ranked


def _compared(node: NodeValue, other: float | None, has_threshold: bool) -> RankedNode:
    difference = None if other is None else node.value - other
    return RankedNode(node, other, difference, None, has_threshold and node.share_beyond > 0)


def center_and_sigma(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the standard deviation as the MAD has it."""
    center = median(values)
    return center, MAD_TO_SIGMA * median(abs(value - center) for value in values)


def _of(groups: list[str]) -> str:
    """Of which groups of peers something is said."""
    named = [group for group in groups if group]
    if len(groups) <= _MOST_NAMED:
        return f" ({'; '.join(named)})" if named else ""
    return f" (of {len(groups)} groups of peers, such as {named[0]})"


def _caveats(members: list[NodeValue]) -> list[str]:
    what = "nodes" if len({node.node_id for node in members}) == len(members) else "series"
    if len(members) == 1:
        return ["only one node has values, so there are no peers to compare it with"]
    if len(members) == 2:
        return [f"only two {what} have values: they can be compared, but not which of them is the odd one"]
    caveats = []
    if len(members) < FEW:
        caveats.append(
            f"only {len(members)} {what} have values, so distances are rough; "
            f"a difference under {MATERIAL_FEW:.0%} is not called an outlier"
        )
    if center_and_sigma([node.value for node in members])[1] == 0:
        caveats.append(
            f"more than half of the {what} have the same value, so there is no spread to measure distance in; "
            "those that differ are ranked by their difference"
        )
    return caveats


def _counts(difference: float, direction: Direction) -> bool:
    return direction == "both" or (difference < 0) == (direction == "below")


def _conspicuousness(entry: RankedNode, direction: Direction) -> tuple[bool, float, float, float]:
    sign = {"below": -1.0, "above": 1.0, "both": 0.0}[direction]

    def directed(amount: float | None) -> float:
        if amount is None:
            return -math.inf
        return sign * amount if sign else abs(amount)

    # Where there is no spread, any difference is farther than any distance.
    distance = directed(entry.distance)
    if entry.distance is None and entry.difference:
        distance = math.copysign(math.inf, directed(entry.difference))
    return entry.is_outlier, entry.node.share_beyond, distance, directed(entry.difference)
