"""`fleet.cluster.find_outlier_nodes`: which nodes are unlike their peers in one metric."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ingero_mcp.analysis.outliers import CUTOFF, RankedNode, Ranking
from ingero_mcp.analysis.threshold import LEAST_K, MOST_K, K
from ingero_mcp.cells import escaped
from ingero_mcp.errors import ConfigError
from ingero_mcp.semconv import ALIASES, HEALTH_SCORE
from ingero_mcp.tools import event_history
from ingero_mcp.tools.answer import DEFAULT_LIMIT, Answer, Table
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.judged import By, Judged, judged_by_ingero, judged_by_peers
from ingero_mcp.tools.nearest import listed
from ingero_mcp.tools.samples import MOST_SERIES, TREATMENTS, SeriesSamples, Shape, shapes
from ingero_mcp.tools.scope import Scope, explain_empty, metric_names
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.windows import WINDOW_FORMS

NAME: Final = "fleet.cluster.find_outlier_nodes"

_MOST_COHORTS: Final = 8  # that are named


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
    peers: Annotated[
        Literal["cohort", "cluster"],
        Field(
            description="Whom a node is compared with: cohort (default: nodes of its cluster with the same GPU model, "
            "workload, stage and shared cgroup) or cluster (all of them)."
        ),
    ] = "cohort"
    method: Annotated[
        Literal["peers", "ingero"],
        Field(
            description="peers (default: robust distance, both sides) or ingero (of health scores: the threshold that "
            "Ingero's agents are told, median - k * MAD * 1.4826 of at least 5 active nodes of a cgroup cohort)."
        ),
    ] = "peers"
    k: Annotated[
        float,
        Field(ge=LEAST_K, le=MOST_K, description=f"With method ingero: its k, {LEAST_K} to {MOST_K}. Default: {K:g}."),
    ] = K


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
            columns=_columns(given, Ranking((), ())),
            rows=[],
            limit=DEFAULT_LIMIT,
            window=window,
            notes=explain_empty(call, scope),
            facts={"metric": metric, "threshold": given.threshold},
        )
    return _ranked(call, given, scope, found)


def _ranked(call: Call, given: FindOutlierNodes, scope: Scope, found: list[Shape]) -> Answer:
    shape = found[0]
    judged = _judged(call, given, scope, shape)
    ranking = judged.ranking
    columns = _columns(given, ranking)
    rows = [[_cell(entry, column, judged) for column in columns] for entry in ranking.nodes]
    follow_up = _events_of_worst(call, scope, ranking.nodes)
    return Answer(
        columns=columns,
        rows=rows[:DEFAULT_LIMIT],
        limit=DEFAULT_LIMIT,
        truncated_by="rows" if len(rows) > DEFAULT_LIMIT else "",
        window=scope.window,
        notes=(*map(escaped, [*_cohorts(ranking), *ranking.caveats]), *_left_out(judged.samples, found)),
        resume=lambda _: follow_up,
        follow_up=follow_up,
        facts={
            "metric": scope.metric,
            "value_is": TREATMENTS[shape.name].meaning,
            "unit": "ns" if shape.name == "span" else shape.unit,
            "direction": judged.direction,
            "threshold": given.threshold if given.threshold is not None else _only_threshold(judged),
            "outliers": sum(entry.is_outlier for entry in ranking.nodes),
        },
    )


def _judged(call: Call, given: FindOutlierNodes, scope: Scope, shape: Shape) -> Judged:
    if given.method == "peers":
        how = By(given.threshold, given.direction, is_in_cohorts=given.peers == "cohort")
        return judged_by_peers(call, scope, shape, how)
    if scope.metric != HEALTH_SCORE or given.direction == "above" or given.threshold is not None:
        raise ConfigError(
            f"method ingero makes its own threshold for {HEALTH_SCORE}, and who is below it is an outlier; leave out "
            'metric, threshold and direction, or use {"method": "peers"}'
        )
    return judged_by_ingero(call, scope, shape, given.k)


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


def _columns(given: FindOutlierNodes, ranking: Ranking) -> tuple[str, ...]:
    has_series = any(entry.series > 1 for entry in ranking.nodes)
    return (
        *("cluster_id", "node_id", "cohort"),
        *(("series", "odd_series") if has_series else ()),
        *("outlier", "value", "peer_median", "difference", "distance", "samples"),
        *(("threshold",) if given.method == "ingero" else ()),
        *(("share_beyond",) if given.threshold is not None else ()),
    )


def _cell(entry: RankedNode, column: str, judged: Judged) -> object:
    node = entry.node
    cells: dict[str, object] = {
        "cluster_id": node.cluster_id,
        "node_id": node.node_id,
        "cohort": node.cohort,
        "series": node.series,
        "odd_series": f"{entry.odd} of {entry.series}",
        "outlier": entry.is_outlier,
        "value": _rounded(node.value),
        "peer_median": _rounded(entry.peer_median),
        "difference": _rounded(entry.difference),
        "distance": None if entry.distance is None else round(entry.distance, 2),
        "samples": node.samples,
        "threshold": _rounded(judged.thresholds.get((node.cluster_id, node.cohort))),
        "share_beyond": round(node.share_beyond, 4),
    }
    return cells[column]


def _only_threshold(judged: Judged) -> float | None:
    """Ingero's threshold, if there is one for all."""
    return _rounded(next(iter(judged.thresholds.values()))) if len(judged.thresholds) == 1 else None


def _cohorts(ranking: Ranking) -> list[str]:
    """Which cohorts there are, where there are several in a cluster."""
    nodes: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in ranking.nodes:
        nodes[entry.node.cluster_id][entry.node.cohort] += 1
    return [
        f"cluster {cluster_id}: nodes are compared within {len(own)} cohorts: "
        + listed(f"{cohort or 'the others'} ({count})" for cohort, count in own.most_common(_MOST_COHORTS))
        for cluster_id, own in nodes.items()
        if len(own) > 1
    ]


def _rounded(value: float | None) -> float | None:
    # The noise of binary fractions (0.6000000000000001) costs tokens and says nothing.
    return None if value is None else float(f"{value:.12g}")


def _left_out(samples: list[SeriesSamples], found: list[Shape]) -> list[str]:
    notes = []
    odd: Counter[str] = Counter()
    for one in samples:
        odd[one.node_id] += one.non_finite
    if ignored := odd.total():
        where = listed(f"{node}: {count}" for node, count in odd.items() if count)
        notes.append(f"{ignored} samples are NaN or infinite and were ignored ({where})")
    heard = {one.node_id for one in samples if one.value is not None}
    if silent := [node for node in odd if node not in heard]:
        notes.append(f"without a finite value, so not ranked: {listed(silent)}")
    if len(samples) >= MOST_SERIES:
        notes.append(f"only the first {MOST_SERIES} series were compared; name a cluster_id")
    notes += [
        f"{shape.rows} events of this name are of another kind ({shape.name}) and were left out" for shape in found[1:]
    ]
    return notes


TOOL: Final = FleetTool(
    name=NAME,
    title="Find outlier nodes",
    description=(
        "Rank nodes by how unlike their peers they are in one metric: robust distance from the median, in standard "
        f"deviations estimated from the MAD; from {CUTOFF} on a node is an outlier. Peers are the nodes of the cluster "
        "with the same GPU model, workload and stage (column cohort). Where a node has several GPUs, ranks or devices, "
        "each is compared and the oddest stands for the node (column series). Start here to find the node that holds "
        f"a cluster back. metric: default {HEALTH_SCORE} (ingero.health.score is the same), or the only one there "
        "is. Counters are differenced (cumulative) or summed (delta), spans compared by duration, events "
        "counted. threshold: with it, nodes with samples past it are the outliers. method: ingero judges as Ingero's "
        f"agents do. window: {WINDOW_FORMS}; default all. The first "
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
        "peers": "cohort",
        "method": "peers",
        "k": 2.0,
    },
)
