"""Judging the nodes of a scope: against the median of their cohort, or as Ingero's agents judge themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Literal

from ingero_mcp.analysis.below_threshold import below_threshold
from ingero_mcp.analysis.outliers import Direction, NodeValue, Ranking, rank_nodes
from ingero_mcp.analysis.threshold import Rule
from ingero_mcp.semconv import ACTIVE, CGROUP_PATH_HASH, HEALTH_SCORE, NODE_STATE
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.cohorts import cohorts
from ingero_mcp.tools.samples import SeriesSamples, Shape, per_series
from ingero_mcp.tools.scope import Scope
from ingero_mcp.views.view import attribute

LOW_IS_BAD: Final = frozenset(
    {
        HEALTH_SCORE,
        "ingero.node.throughput_ratio",
        "ingero.node.compute_efficiency",
        "ingero.node.memory_headroom",
        "ingero.node.cpu_availability",
        "gpu.clock.sm_mhz",
    }
)
"""Metrics of which only a low value is a bad sign: `direction` auto means below for them."""

_IS_ACTIVE: Final = f"coalesce({attribute(NODE_STATE)}, '{ACTIVE}') = '{ACTIVE}'"


@dataclass(frozen=True, slots=True)
class By:
    """How nodes are compared with their peers: an absolute limit or None, which side, within cohorts or clusters."""

    threshold: float | None
    direction: Literal["below", "above", "auto"]
    is_in_cohorts: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A ranking and the samples that it is of; `thresholds` are Ingero's of each (cluster, cohort), None: no quorum."""

    ranking: Ranking
    samples: list[SeriesSamples]
    direction: Direction
    thresholds: dict[tuple[str, str], float | None]


def judged_by_peers(call: Call, scope: Scope, shape: Shape, by: By) -> Judged:
    """Every series against the median of its cohort."""
    samples = per_series(call, scope, shape, by.threshold)
    direction = _direction(by, scope.metric or "", samples)
    names = cohorts(call, scope, samples) if by.is_in_cohorts else [""] * len(samples)
    values = [
        _value(one, one.value, cohort, one.beyond(direction))
        for one, cohort in zip(samples, names, strict=True)
        if one.value is not None
    ]
    return Judged(rank_nodes(values, direction, has_threshold=by.threshold is not None), samples, direction, {})


def judged_by_ingero(call: Call, scope: Scope, shape: Shape, k: float) -> Judged:
    """The active nodes against the threshold that agents are told, by the key of Ingero's own cohorts."""
    samples = per_series(call, scope, replace(shape, is_cgroup_shared=True), None, only=_IS_ACTIVE)
    by_node: dict[tuple[str, str, str], NodeValue] = {}
    # Where a node changed what it works at, that which it did longest stands for it.
    for one in sorted(samples, key=lambda one: one.samples):
        if one.value is not None:
            cgroup = one.said.get(CGROUP_PATH_HASH, "")
            cohort = f"cgroup {cgroup}" if cgroup else ""
            by_node[one.cluster_id, one.node_id, cgroup] = replace(_value(one, one.value, cohort, 0.0), kind="")
    told = below_threshold(list(by_node.values()), Rule(k=k))
    limits = {group: one.value if one.quorum_met else None for group, one in told.thresholds.items()}
    return Judged(told.ranking, samples, "below", limits)


def _value(one: SeriesSamples, value: float, cohort: str, beyond: float) -> NodeValue:
    series = one.series
    return NodeValue(one.cluster_id, one.node_id, value, one.samples, beyond, cohort, series.kind, series.name)


def _direction(by: By, metric: str, samples: list[SeriesSamples]) -> Direction:
    if by.direction != "auto":
        return by.direction
    if metric in LOW_IS_BAD:
        return "below"
    values = [one.value for one in samples if one.value is not None]
    if by.threshold is None or not values:
        return "both"
    return "below" if by.threshold <= median(values) else "above"
