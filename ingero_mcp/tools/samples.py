"""SQL that turns the events of one metric into one value per node, whatever kind of metric it is.

Temporality is part of a value: a delta is added up, a cumulative counter is differenced, and only a gauge is
its own value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ingero_mcp.analysis.outliers import NodeValue
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.scope import Scope

MOST_NODES: Final = 10_000

_KIND: Final = """json_extract_string(attrs_json, '$."otlp.metric.kind"')"""
_TEMPORALITY: Final = """json_extract_string(attrs_json, '$."otlp.metric.temporality"')"""
_MONOTONIC: Final = """json_extract_string(attrs_json, '$."otlp.metric.monotonic"')"""
_UNIT: Final = """json_extract_string(attrs_json, '$."otlp.metric.unit"')"""
_SHAPE: Final = f"""
    CASE WHEN value_double IS NULL AND duration_ns IS NOT NULL THEN 'span'
         WHEN {_KIND} IN ('histogram', 'exponential_histogram', 'summary') THEN 'histogram'
         WHEN value_double IS NULL AND {_KIND} IS NULL THEN 'point'
         WHEN {_KIND} = 'sum' AND {_TEMPORALITY} = 'delta' THEN 'delta'
         WHEN {_KIND} = 'sum' AND {_TEMPORALITY} = 'cumulative' AND {_MONOTONIC} = 'true' THEN 'cumulative'
         ELSE 'gauge' END"""

# A counter belongs to a node, a process and its attributes. What the decoder notes about a point is no part of it.
_SERIES: Final = """cluster_id, node_id, rank, pid, gpu_uuid, comm_id, json_merge_patch(attrs_json,
    '{"otlp.metric.start_time_ns": null, "otlp.metric.flags": null,
      "otlp.exemplars": null, "otlp.time_raw_ns": null}')"""


@dataclass(frozen=True, slots=True)
class Treatment:
    """How one shape of metric becomes a value: `sample` of each event, then `combine` of a node's samples."""

    meaning: str
    sample: str
    combine: str


TREATMENTS: Final[dict[str, Treatment]] = {
    "gauge": Treatment("median of the node's samples", "value_double", "median"),
    "span": Treatment("median of the node's span durations, in ns", "CAST(duration_ns AS DOUBLE)", "median"),
    "delta": Treatment("sum of the node's deltas over the window", "value_double", "sum"),
    "cumulative": Treatment("increase of the node's counters over the window, resets counted", "", "sum"),
    "histogram": Treatment("median of the node's points, each the mean of its histogram (sum/count)", "", "median"),
    "point": Treatment("number of the node's events; nodes without any count as 0", "CAST(1 AS DOUBLE)", "sum"),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape that the metric has in the scope, with its number of rows and its unit."""

    name: str
    rows: int
    unit: str | None


@dataclass(frozen=True, slots=True)
class NodeSamples:
    """What is known of one node: `value` is None where it has no finite sample.

    `below` and `above` are the shares past the threshold: of the samples where the value is typical of them, of
    the value itself (1 or 0) where it is their total.
    """

    cluster_id: str
    node_id: str
    value: float | None
    samples: int
    below: float
    above: float
    non_finite: int

    def against(self, side: str) -> NodeValue | None:
        """The node with its share past the threshold on `side`, ready to be ranked."""
        if self.value is None:
            return None
        beyond = {"below": self.below, "above": self.above}.get(side, 0.0)
        return NodeValue(self.cluster_id, self.node_id, self.value, self.samples, beyond)


def shapes(call: Call, scope: Scope) -> list[Shape]:
    """The shapes of the scope's events, most frequent first."""
    rows = call.read(
        f"SELECT {_SHAPE} AS shape, count(*) AS n, max({_UNIT}) AS unit FROM events WHERE {scope.where()} "
        "GROUP BY shape ORDER BY n DESC, shape",
        len(TREATMENTS),
    ).rows
    return [Shape(str(name), int(str(count)), str(unit) if unit else None) for name, count, unit in rows]


def per_node(call: Call, scope: Scope, shape: str, threshold: float | None) -> list[NodeSamples]:
    """One value per node, with the share on either side of the threshold."""
    combine = TREATMENTS[shape].combine
    limit = "CAST(NULL AS DOUBLE)" if threshold is None else f"CAST({threshold!r} AS DOUBLE)"
    past = "avg(CAST(v {} {} AS INTEGER)) FILTER (WHERE isfinite(v))"
    if combine == "sum":
        past = "CAST(sum(v) FILTER (WHERE isfinite(v)) {} {} AS INTEGER)"
    rows = call.read(
        f"SELECT cluster_id, node_id, {combine}(v) FILTER (WHERE isfinite(v)) AS value, "
        "count(*) FILTER (WHERE isfinite(v)) AS samples, "
        f"{past.format('<', limit)} AS below, {past.format('>', limit)} AS above, "
        "count(*) FILTER (WHERE NOT isfinite(v)) AS non_finite "
        f"FROM ({_samples(scope, shape)}) AS sampled WHERE v IS NOT NULL "
        f"GROUP BY cluster_id, node_id ORDER BY cluster_id, node_id LIMIT {MOST_NODES}",
        MOST_NODES,
    ).rows
    nodes = [_node(row) for row in rows]
    return nodes + _silent(call, scope, nodes, threshold) if shape == "point" else nodes


def _samples(scope: Scope, shape: str) -> str:
    where = f"{scope.where()} AND {_SHAPE} = '{shape}'"
    if shape == "cumulative":
        return _increments(where)
    sample = TREATMENTS[shape].sample
    if shape == "histogram":
        facts = f"""concat('$."otlp.', {_KIND}, '"')"""
        sample = (
            f"CAST(json_extract_string(attrs_json, concat({facts}, '.sum')) AS DOUBLE) / "
            f"nullif(CAST(json_extract_string(attrs_json, concat({facts}, '.count')) AS DOUBLE), 0)"
        )
    return f"SELECT cluster_id, node_id, {sample} AS v FROM events WHERE {where}"


def _increments(where: str) -> str:
    # After a reset the counter began again at 0, so all of its new value is increase. Integers are subtracted
    # as integers: a counter of nanoseconds soon passes what a double holds exactly. A non-finite point is passed
    # on as it is, to be counted, and is no neighbour of any other.
    return f"""
        SELECT cluster_id, node_id,
               CASE WHEN before IS NULL THEN NULL
                    WHEN value_double < before THEN value_double
                    ELSE coalesce(CAST(value_int - before_int AS DOUBLE), value_double - before) END AS v
        FROM (SELECT cluster_id, node_id, value_double, value_int,
                     lag(value_double) OVER series AS before, lag(value_int) OVER series AS before_int
              FROM events WHERE {where} AND isfinite(value_double)
              WINDOW series AS (PARTITION BY {_SERIES} ORDER BY timestamp_ns, event_seq)) AS finite
        UNION ALL
        SELECT cluster_id, node_id, value_double AS v
        FROM events WHERE {where} AND NOT isfinite(value_double)"""


def _silent(call: Call, scope: Scope, heard: Sequence[NodeSamples], threshold: float | None) -> list[NodeSamples]:
    # For things that happen or do not, a node that sent other events but none of these has had none.
    present = Scope(cluster_id=scope.cluster_id, window=scope.window)
    rows = call.read(
        f"SELECT DISTINCT cluster_id, node_id FROM events WHERE {present.where()} "
        f"ORDER BY cluster_id, node_id LIMIT {MOST_NODES}",
        MOST_NODES,
    ).rows
    known = {(node.cluster_id, node.node_id) for node in heard}
    silent = [(str(cluster_id), str(node_id)) for cluster_id, node_id in rows]
    below = float(threshold is not None and threshold > 0)
    return [NodeSamples(*place, 0.0, 0, below, 0.0, 0) for place in silent if place not in known]


def _node(row: Sequence[object]) -> NodeSamples:
    cluster_id, node_id, value, samples, below, above, non_finite = row
    return NodeSamples(
        str(cluster_id),
        str(node_id),
        _number(value),
        int(str(samples)),
        _number(below) or 0.0,
        _number(above) or 0.0,
        int(str(non_finite)),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
