"""Which nodes Ingero's agents would call stragglers: those under the threshold of their cohort."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ingero_mcp.analysis.outliers import MAD_TO_SIGMA, NodeValue, RankedNode, Ranking, in_rank
from ingero_mcp.analysis.threshold import Rule, Threshold, is_below, threshold_of

_MOST_CAVEATS: Final = 8


@dataclass(frozen=True, slots=True)
class Judged:
    """The nodes in order, and the threshold of each (cluster, cohort)."""

    ranking: Ranking
    thresholds: dict[tuple[str, str], Threshold]


def below_threshold(nodes: Sequence[NodeValue], rule: Rule) -> Judged:
    """Rank nodes by Ingero's formula, not smoothed. A cohort without a quorum has no outliers, and that is said."""
    members: dict[tuple[str, str], list[NodeValue]] = defaultdict(list)
    for node in sorted(nodes, key=lambda one: (one.cluster_id, one.cohort, one.node_id)):
        members[node.cluster_id, node.cohort].append(node)
    thresholds = {group: threshold_of([node.value for node in own], rule) for group, own in members.items()}
    ranked = [_judged(node, thresholds[group]) for group, own in members.items() for node in own]
    small = [group for group, one in thresholds.items() if not one.quorum_met]
    caveats = [
        f"cluster {cluster_id}{f', {cohort}' if cohort else ''}: {thresholds[cluster_id, cohort].nodes} active nodes, "
        f"of which there must be {rule.least_nodes} for a threshold; nobody is called an outlier"
        for cluster_id, cohort in small[:_MOST_CAVEATS]
    ]
    if len(small) > _MOST_CAVEATS:
        caveats.append(f"{len(small) - _MOST_CAVEATS} more cohorts are as small")
    return Judged(Ranking(in_rank(ranked, "below"), tuple(caveats)), thresholds)


def _judged(node: NodeValue, threshold: Threshold) -> RankedNode:
    difference = node.value - threshold.median
    sigma = MAD_TO_SIGMA * threshold.mad
    is_outlier = threshold.quorum_met and is_below(node.value, threshold.value)
    return RankedNode(node, threshold.median, difference, difference / sigma if sigma else None, is_outlier)
