"""Which node is unlike its peers: a robust ranking of one value per node.

The yardstick is the median of the nodes of a cluster and their median absolute deviation (MAD), which a
single bad node cannot move. What cannot be known (two nodes, no spread) is said instead of computed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

Direction = Literal["below", "above", "both"]

MAD_TO_SIGMA: Final = 1.4826
"""Makes the MAD of normally distributed values comparable to their standard deviation."""

CUTOFF: Final = 3.5
"""Robust distance from which a node is called an outlier (Iglewicz and Hoaglin 1993)."""

MATERIAL: Final = 0.01
"""A node that differs from its peers' median by a smaller share of it is none, however small the spread."""

MATERIAL_FEW: Final = 0.10
"""The same for fewer than `FEW` nodes, whose spread is only a rough guess."""

FEW: Final = 6


@dataclass(frozen=True, slots=True)
class NodeValue:
    """The value of one node: what is typical for it, or its total.

    `samples` counts the finite samples behind it. `share_beyond` is the share of them past the threshold; of
    a total it is 1 or 0.
    """

    cluster_id: str
    node_id: str
    value: float
    samples: int
    share_beyond: float = 0.0


@dataclass(frozen=True, slots=True)
class RankedNode:
    """A node among its peers.

    `difference` is the value minus `peer_median`; `distance` the same in robust standard deviations, None
    where the peers have no spread or there are too few of them. `is_outlier` is the conclusion.
    """

    node: NodeValue
    peer_median: float | None
    difference: float | None
    distance: float | None
    is_outlier: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """Nodes, the most conspicuous first; `caveats` are sentences on what the ranking cannot say."""

    nodes: tuple[RankedNode, ...]
    caveats: tuple[str, ...]


def rank_nodes(nodes: Sequence[NodeValue], direction: Direction, *, has_threshold: bool = False) -> Ranking:
    """Rank nodes by their distance from the nodes of the same cluster.

    With a threshold, nodes with samples past it are the outliers, by share of such samples. Without one, an
    outlier is at least `CUTOFF` away and materially different. `direction` says which side counts.

    >>> nodes = [NodeValue("c", f"n{i}", value, 10) for i, value in enumerate((0.91, 0.90, 0.30, 0.92))]
    >>> rank_nodes(nodes, "below").nodes[0].node.node_id
    'n2'
    """
    clusters: dict[str, list[NodeValue]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: (node.cluster_id, node.node_id)):  # ties stay in this order
        clusters[node.cluster_id].append(node)
    ranked: list[RankedNode] = []
    caveats: list[str] = []
    for cluster_id, members in clusters.items():
        ranked += _rank_cluster(members, direction, has_threshold)
        caveats += [f"cluster {cluster_id}: {caveat}" for caveat in _caveats(members)]
    ranked.sort(key=lambda entry: _conspicuousness(entry, direction), reverse=True)
    return Ranking(tuple(ranked), tuple(caveats))


def _rank_cluster(members: list[NodeValue], direction: Direction, has_threshold: bool) -> list[RankedNode]:
    if len(members) < 3:
        # Of two nodes either may be the odd one; alone, there is nothing to differ from.
        return [
            _compared(node, members[1 - place].value if len(members) == 2 else None, has_threshold)
            for place, node in enumerate(members)
        ]
    center, sigma = _center_and_sigma(members)
    least = (MATERIAL if len(members) >= FEW else MATERIAL_FEW) * abs(center)
    ranked = []
    for node in members:
        difference = node.value - center
        distance = difference / sigma if sigma > 0 else None
        is_far = distance is None or abs(distance) >= CUTOFF
        is_material = difference != 0 and abs(difference) >= least
        is_outlier = is_far and is_material and _counts(difference, direction)
        if has_threshold:
            is_outlier = node.share_beyond > 0
        ranked.append(RankedNode(node, center, difference, distance, is_outlier))
    return ranked


def _compared(node: NodeValue, other: float | None, has_threshold: bool) -> RankedNode:
    difference = None if other is None else node.value - other
    return RankedNode(node, other, difference, None, has_threshold and node.share_beyond > 0)


def _center_and_sigma(members: list[NodeValue]) -> tuple[float, float]:
    center = median(node.value for node in members)
    return center, MAD_TO_SIGMA * median(abs(node.value - center) for node in members)


def _caveats(members: list[NodeValue]) -> list[str]:
    if len(members) == 1:
        return ["only one node has values, so there are no peers to compare it with"]
    if len(members) == 2:
        return ["only two nodes have values: they can be compared, but not which of them is the odd one"]
    caveats = []
    if len(members) < FEW:
        caveats.append(
            f"only {len(members)} nodes have values, so distances are rough; "
            f"a difference under {MATERIAL_FEW:.0%} is not called an outlier"
        )
    if _center_and_sigma(members)[1] == 0:
        caveats.append(
            "more than half of the nodes have the same value, so there is no spread to measure distance in; "
            "nodes that differ are ranked by their difference"
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
