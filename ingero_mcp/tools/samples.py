"""SQL that turns the events of one metric into one value per series of a node, whatever kind of metric it is.

Temporality is part of a value: a delta is added up, a cumulative counter is differenced, and only a gauge is
its own value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.scope import Scope
from ingero_mcp.tools.series import RANK, Series, attributes, series_of, told
from ingero_mcp.views.view import attribute

MOST_NODES: Final = 10_000
MOST_SERIES: Final = 100_000
_SHARED: Final = 3  # nodes that make a cgroup path one that is shared

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
    """How one shape of metric becomes a value: `sample` of each event, then `combine` of a series' samples."""

    meaning: str
    sample: str
    combine: str


TREATMENTS: Final[dict[str, Treatment]] = {
    "gauge": Treatment("median of the samples", "value_double", "median"),
    "span": Treatment("median of the span durations, in ns", "CAST(duration_ns AS DOUBLE)", "median"),
    "delta": Treatment("sum of the deltas over the window", "value_double", "sum"),
    "cumulative": Treatment("increase of the counters over the window, resets counted", "", "sum"),
    "histogram": Treatment("median of the points, each the mean of its histogram (sum/count)", "", "median"),
    "point": Treatment("number of the node's events; nodes without any count as 0", "CAST(1 AS DOUBLE)", "sum"),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape that the metric has in the scope, with its number of rows and its unit.

    `is_cgroup_shared`: whether most nodes have a cgroup path in common with others. The path of a pod is its own, so
    that its hash is a name of the node and says nothing of whom to compare it with.
    """

    name: str
    rows: int
    unit: str | None
    is_cgroup_shared: bool = False


@dataclass(frozen=True, slots=True)
class SeriesSamples:
    """What is known of one series of a node: `value` is None where it has no finite sample.

    `said` are the attributes that all its samples have. `below` and `above` are the shares past the threshold: of the
    samples where the value is typical of them, of the value itself (1 or 0) where it is their total.
    """

    cluster_id: str
    node_id: str
    series: Series
    said: Mapping[str, str]
    value: float | None
    samples: int
    below: float
    above: float
    non_finite: int

    def beyond(self, side: str) -> float:
        """The share past the threshold on `side`."""
        return {"below": self.below, "above": self.above}.get(side, 0.0)


def shapes(call: Call, scope: Scope) -> list[Shape]:
    """The shapes of the scope's events, most frequent first."""
    rows = call.read(
        f"SELECT {_SHAPE} AS shape, cluster_id, {attribute(semconv.CGROUP_PATH_HASH)} AS cgroup, count(*) AS n, "
        f"count(DISTINCT node_id) AS nodes, max({_UNIT}) AS unit FROM events WHERE {scope.where()} "
        f"GROUP BY shape, cluster_id, cgroup ORDER BY n DESC LIMIT {MOST_SERIES}",
        MOST_SERIES,
    ).rows
    by_name: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    for row in rows:
        by_name[str(row[0])].append(row)
    found = [_shape(name, own) for name, own in by_name.items()]
    return sorted(found, key=lambda shape: (-shape.rows, shape.name))


def _shape(name: str, rows: Sequence[Sequence[object]]) -> Shape:
    with_hash = [int(str(nodes)) for _, _, cgroup, _, nodes, _ in rows if cgroup]
    shared = sum(nodes for nodes in with_hash if nodes >= _SHARED)
    unit = next((str(row[5]) for row in rows if row[5]), None)
    return Shape(name, sum(int(str(row[3])) for row in rows), unit, 2 * shared > sum(with_hash))


def per_series(
    call: Call, scope: Scope, shape: Shape, threshold: float | None, *, only: str = "true"
) -> list[SeriesSamples]:
    """One value per series of a node, with the share on either side of the threshold; `only` is a further condition."""
    combine = TREATMENTS[shape.name].combine
    limit = "CAST(NULL AS DOUBLE)" if threshold is None else f"CAST({threshold!r} AS DOUBLE)"
    past = "avg(CAST(v {} {} AS INTEGER)) FILTER (WHERE isfinite(v))"
    if combine == "sum":
        past = "CAST(sum(v) FILTER (WHERE isfinite(v)) {} {} AS INTEGER)"
    keys = attributes(with_cgroup=shape.is_cgroup_shared)
    rows = call.read(
        f"SELECT cluster_id, node_id, rank_, gpu_uuid, told, {combine}(v) FILTER (WHERE isfinite(v)) AS value, "
        "count(*) FILTER (WHERE isfinite(v)) AS samples, "
        f"{past.format('<', limit)} AS below, {past.format('>', limit)} AS above, "
        "count(*) FILTER (WHERE NOT isfinite(v)) AS non_finite "
        f"FROM ({_samples(f'{scope.where()} AND {only}', shape.name, keys)}) AS sampled WHERE v IS NOT NULL "
        f"GROUP BY cluster_id, node_id, rank_, gpu_uuid, told ORDER BY ALL LIMIT {MOST_SERIES}",
        MOST_SERIES,
    ).rows
    found = [_series(row, keys) for row in rows]
    return found + _silent(call, scope, found, threshold) if shape.name == "point" else found


def _samples(among: str, shape: str, keys: Sequence[str]) -> str:
    where = f"{among} AND {_SHAPE} = '{shape}'"
    # What happened to a node happened to the node: which GPU or rank of the others it did not happen to is not known.
    parts = "NULL AS rank_, NULL AS gpu_uuid, NULL AS told" if shape == "point" else _parts(keys)
    if shape == "cumulative":
        return _increments(where, parts)
    sample = TREATMENTS[shape].sample
    if shape == "histogram":
        facts = f"""concat('$."otlp.', {_KIND}, '"')"""
        sample = (
            f"CAST(json_extract_string(attrs_json, concat({facts}, '.sum')) AS DOUBLE) / "
            f"nullif(CAST(json_extract_string(attrs_json, concat({facts}, '.count')) AS DOUBLE), 0)"
        )
    return f"SELECT cluster_id, node_id, {parts}, {sample} AS v FROM events WHERE {where}"


def _parts(keys: Sequence[str]) -> str:
    return f"{RANK} AS rank_, gpu_uuid, {told(keys)} AS told"


def _increments(where: str, parts: str) -> str:
    # After a reset the counter began again at 0, so all of its new value is increase. Integers are subtracted
    # as integers: a counter of nanoseconds soon passes what a double holds exactly. A non-finite point is passed
    # on as it is, to be counted, and is no neighbour of any other.
    return f"""
        SELECT cluster_id, node_id, rank_, gpu_uuid, told,
               CASE WHEN before IS NULL THEN NULL
                    WHEN value_double < before THEN value_double
                    ELSE coalesce(CAST(value_int - before_int AS DOUBLE), value_double - before) END AS v
        FROM (SELECT cluster_id, node_id, {parts}, value_double, value_int,
                     lag(value_double) OVER series AS before, lag(value_int) OVER series AS before_int
              FROM events WHERE {where} AND isfinite(value_double)
              WINDOW series AS (PARTITION BY {_SERIES} ORDER BY timestamp_ns, event_seq)) AS finite
        UNION ALL
        SELECT cluster_id, node_id, {parts}, value_double AS v
        FROM events WHERE {where} AND NOT isfinite(value_double)"""


def _silent(call: Call, scope: Scope, heard: Sequence[SeriesSamples], threshold: float | None) -> list[SeriesSamples]:
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
    return [SeriesSamples(*place, Series("", ""), {}, 0.0, 0, below, 0.0, 0) for place in silent if place not in known]


def _series(row: Sequence[Any], keys: Sequence[str]) -> SeriesSamples:
    cluster_id, node_id, rank, gpu_uuid, told_, value, samples, below, above, non_finite = row
    said = {key: text for key, text in zip(keys, told_ or (), strict=False) if text}
    return SeriesSamples(
        str(cluster_id),
        str(node_id),
        series_of(rank, gpu_uuid, said),
        said,
        _number(value),
        samples,
        _number(below) or 0.0,
        _number(above) or 0.0,
        non_finite,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
