"""`fleet.cluster.find_outlier_nodes`: which nodes are unlike their peers in one metric."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ingero_mcp.analysis.outliers import CUTOFF, Direction, RankedNode, rank_nodes
from ingero_mcp.cells import escaped
from ingero_mcp.errors import ConfigError
from ingero_mcp.semconv import ALIASES, HEALTH_SCORE
from ingero_mcp.tools import event_history
from ingero_mcp.tools.answer import DEFAULT_LIMIT, Answer, Table
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.nearest import listed
from ingero_mcp.tools.samples import TREATMENTS, NodeSamples, Shape, per_node, shapes
from ingero_mcp.tools.scope import Scope, explain_empty, metric_names
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.windows import WINDOW_FORMS

NAME: Final = "fleet.cluster.find_outlier_nodes"

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

_COLUMNS: Final = (
    "cluster_id",
    "node_id",
    "outlier",
    "value",
    "peer_median",
    "difference",
    "distance",
    "samples",
    "share_beyond",
)


class FindOutlierNodes(BaseModel):
    """Arguments of find_outlier_nodes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: Annotated[str | None, Field(description=f"Time range: {WINDOW_FORMS}. Default: all.")] = None
    metric: Annotated[
        str | None,
        Field(
            description=f"Metric, span or event name. Default: {HEALTH_SCORE}, or the only one there is. "
            "Of spans the duration is compared, of events the number."
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Field(
            description="Absolute limit, such as 0.4: nodes with samples past it are the outliers. "
            "Default: none, nodes are compared with their peers."
        ),
    ] = None
    direction: Annotated[
        Literal["below", "above", "auto"],
        Field(
            description="Which side is suspicious: below, above or auto (default: below for health scores and "
            "the like, else both sides; with a threshold, the side of it where most nodes are not)."
        ),
    ] = "auto"
    cluster_id: Annotated[str | None, Field(description="Only this cluster. Default: all.")] = None


class OutlierTable(Table):
    """The structured content of find_outlier_nodes."""

    metric: str | None = Field(default=None, exclude_if=lambda value: value is None)
    value_is: Annotated[
        str | None,
        Field(description="what the column value holds", exclude_if=lambda value: value is None),
    ] = None
    unit: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    direction: Annotated[
        str | None, Field(description="below, above or both", exclude_if=lambda value: value is None)
    ] = None
    threshold: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    outliers: Annotated[int, Field(description="number of nodes called outliers")] = 0


def find_outlier_nodes(call: Call, given: FindOutlierNodes) -> Answer:
    """Rank the nodes of each cluster by how far they are from the others."""
    window = call.window(given.window)
    metric = given.metric or _only_metric(call, Scope(window=window, cluster_id=given.cluster_id))
    metric = ALIASES.get(metric, metric) if metric else None
    scope = Scope(cluster_id=given.cluster_id, metric=metric, window=window)
    found = shapes(call, scope) if metric else []
    if not metric or not found:
        return Answer(
            columns=_columns(given),
            rows=[],
            limit=DEFAULT_LIMIT,
            window=window,
            notes=explain_empty(call, scope),
            facts={"metric": metric, "threshold": given.threshold},
        )
    return _ranked(call, given, scope, found)


def _ranked(call: Call, given: FindOutlierNodes, scope: Scope, found: list[Shape]) -> Answer:
    shape = found[0]
    nodes = per_node(call, scope, shape.name, given.threshold)
    direction = _direction(given, scope.metric or "", nodes)
    ranking = rank_nodes(
        [value for node in nodes if (value := node.against(direction))],
        direction,
        has_threshold=given.threshold is not None,
    )
    columns = _columns(given)
    rows = [[_cell(entry, column) for column in columns] for entry in ranking.nodes]
    follow_up = _events_of_worst(call, scope, ranking.nodes)
    return Answer(
        columns=columns,
        rows=rows[:DEFAULT_LIMIT],
        limit=DEFAULT_LIMIT,
        truncated_by="rows" if len(rows) > DEFAULT_LIMIT else "",
        window=scope.window,
        notes=(*map(escaped, ranking.caveats), *_left_out(nodes, found)),
        resume=lambda _: follow_up,
        follow_up=follow_up,
        facts={
            "metric": scope.metric,
            "value_is": TREATMENTS[shape.name].meaning,
            "unit": "ns" if shape.name == "span" else shape.unit,
            "direction": direction,
            "threshold": given.threshold,
            "outliers": sum(entry.is_outlier for entry in ranking.nodes),
        },
    )


def _events_of_worst(call: Call, scope: Scope, ranked: Sequence[RankedNode]) -> str | None:
    worst = next((entry.node for entry in ranked if entry.is_outlier), None)
    if worst is None:
        return None
    asked: dict[str, object] = {
        "cluster_id": worst.cluster_id,
        "node_id": worst.node_id,
        "metric": scope.metric,
        "window": scope.window.absolute if scope.window else None,
    }
    return call.next_call(event_history.NAME, asked)


def _only_metric(call: Call, scope: Scope) -> str | None:
    """The metric to take where none was given; None if there are no events at all."""
    names = metric_names(call, scope)
    if not names or HEALTH_SCORE in names:
        return HEALTH_SCORE if names else None
    if len(names) == 1:
        return next(iter(names))
    raise ConfigError(
        f"metric is needed, since there is no {HEALTH_SCORE} here; existing: {listed(names)}; "
        f'for example {{"metric": "{next(iter(names))}"}}'
    )


def _direction(given: FindOutlierNodes, metric: str, nodes: list[NodeSamples]) -> Direction:
    if given.direction != "auto":
        return given.direction
    if metric in LOW_IS_BAD:
        return "below"
    values = [node.value for node in nodes if node.value is not None]
    if given.threshold is None or not values:
        return "both"
    return "below" if given.threshold <= median(values) else "above"


def _columns(given: FindOutlierNodes) -> tuple[str, ...]:
    return _COLUMNS if given.threshold is not None else _COLUMNS[:-1]


def _cell(entry: RankedNode, column: str) -> object:
    cells: dict[str, object] = {
        "cluster_id": entry.node.cluster_id,
        "node_id": entry.node.node_id,
        "outlier": entry.is_outlier,
        "value": _rounded(entry.node.value),
        "peer_median": _rounded(entry.peer_median),
        "difference": _rounded(entry.difference),
        "distance": None if entry.distance is None else round(entry.distance, 2),
        "samples": entry.node.samples,
        "share_beyond": round(entry.node.share_beyond, 4),
    }
    return cells[column]


def _rounded(value: float | None) -> float | None:
    # The noise of binary fractions (0.6000000000000001) costs tokens and says nothing.
    return None if value is None else float(f"{value:.12g}")


def _left_out(nodes: list[NodeSamples], found: list[Shape]) -> list[str]:
    notes = []
    if ignored := sum(node.non_finite for node in nodes):
        where = listed(f"{node.node_id}: {node.non_finite}" for node in nodes if node.non_finite)
        notes.append(f"{ignored} samples are NaN or infinite and were ignored ({where})")
    if silent := [node.node_id for node in nodes if node.value is None]:
        notes.append(f"without a finite value, so not ranked: {listed(silent)}")
    notes += [
        f"{shape.rows} events of this name are of another kind ({shape.name}) and were left out" for shape in found[1:]
    ]
    return notes


TOOL: Final = FleetTool(
    name=NAME,
    title="Find outlier nodes",
    description=(
        "Rank nodes by how unlike their peers (the other nodes of the cluster) they are in one metric: "
        "robust distance from the median of the per-node values, in standard deviations estimated from "
        f"the MAD; from {CUTOFF} on a node is an outlier. Start here to find the node that holds a cluster "
        f"back. metric: default {HEALTH_SCORE} (ingero.health.score is the same), or the only one there "
        "is. Counters are differenced (cumulative) or summed (delta), spans compared by duration, events "
        "counted. threshold: with it, nodes with samples past it are the outliers, by the share of such "
        f"samples. direction: below, above, auto (default). window: {WINDOW_FORMS}; default all. The first "
        f"{DEFAULT_LIMIT} nodes are returned, most conspicuous first; `next` shows the events of the worst."
    ),
    arguments=FindOutlierNodes,
    answer=find_outlier_nodes,
    table=OutlierTable,
    example={
        "window": "last 15m",
        "metric": HEALTH_SCORE,
        "threshold": 0.4,
        "direction": "below",
        "cluster_id": "prod",
    },
)
