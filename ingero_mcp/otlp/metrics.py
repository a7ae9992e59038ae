"""OTLP metric points to rows: one row per data point, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue
from ingero_mcp.otlp.attributes import AttributeCache, json_member, plain_attributes
from ingero_mcp.otlp.messages import MetricsRequest
from ingero_mcp.otlp.records import SLOT, Arrival, Origin, Records

_NAME, _SOURCE = SLOT["metric_name"], SLOT["source"]
_DOUBLE, _INT = SLOT["value_double"], SLOT["value_int"]
_TEMPORALITY: Final = {1: "delta", 2: "cumulative"}


class _Kind(NamedTuple):
    """How the points of one kind of metric are read: `put` sets the value and returns the rest as JSON members."""

    name: str
    put: Callable[[Records, int, Any], list[str]]
    has_temporality: bool = False


def decode_metrics(body: bytes, arrival: Arrival, cache: AttributeCache) -> Records:
    """Rows of an ExportMetricsServiceRequest."""
    request: Any = MetricsRequest.FromString(body)
    scopes = [(resource, scoped) for resource in request.resource_metrics for scoped in resource.scope_metrics]
    total = sum(len(_points(metric)) for _, scoped in scopes for metric in scoped.metrics)
    records = Records(total, arrival, cache)
    for resource, scoped in scopes:
        origin = records.origin(resource, scoped)
        for metric in scoped.metrics:
            records.each(_points(metric), partial(_put, records, origin, _shared(metric)))
    return records


class _Shared(NamedTuple):
    """What all points of one metric have in common."""

    name: str
    source: str
    put_value: Callable[[Records, int, Any], list[str]]
    members: list[str]


def _shared(metric: Any) -> _Shared:
    name = semconv.ALIASES.get(metric.name, metric.name)
    kind = _KINDS.get(metric.WhichOneof("data"), _KINDS["gauge"])
    return _Shared(name, semconv.source_of(name), kind.put, _describe(metric))


def _put(records: Records, origin: Origin, shared: _Shared, row: int, point: Any) -> None:
    members = [*shared.members, *shared.put_value(records, row, point)]
    records.columns[_NAME][row] = shared.name
    records.columns[_SOURCE][row] = shared.source
    records.put_time(row, point.time_unix_nano, members)
    if point.start_time_unix_nano:
        members.append(json_member("otlp.metric.start_time_ns", point.start_time_unix_nano))
    if point.flags:
        members.append(json_member("otlp.metric.flags", point.flags))
    records.fill(row, origin, point.attributes, members)


def _points(metric: Any) -> Any:
    kind = metric.WhichOneof("data")
    return getattr(metric, kind).data_points if kind else ()


def _describe(metric: Any) -> list[str]:
    """What all points of a metric share and no column holds."""
    kind = metric.WhichOneof("data")
    if kind is None:
        return []
    described: list[tuple[str, AttributeValue]] = [("kind", _KINDS[kind].name)]
    if _KINDS[kind].has_temporality:
        temporality = getattr(metric, kind).aggregation_temporality
        described.append(("temporality", _TEMPORALITY.get(temporality, "unspecified")))
    if kind == "sum":
        described.append(("monotonic", metric.sum.is_monotonic))
    if metric.name in semconv.ALIASES:
        described.append(("name", metric.name))
    described += [(key, getattr(metric, key)) for key in ("unit", "description") if getattr(metric, key)]
    members = [json_member(f"otlp.metric.{key}", value) for key, value in described]
    if metric.metadata:
        members.append(json_member("otlp.metric.metadata", plain_attributes(metric.metadata)))
    return members


def _put_number(records: Records, row: int, point: Any) -> list[str]:
    kind = point.WhichOneof("value")
    if kind == "as_int":
        records.columns[_INT][row] = point.as_int
        records.columns[_DOUBLE][row] = float(point.as_int)
    elif kind == "as_double":
        records.columns[_DOUBLE][row] = point.as_double
    return _exemplars(point)


def _put_histogram(records: Records, row: int, point: Any) -> list[str]:
    buckets: dict[str, AttributeValue] = {
        "count": point.count,
        "bounds": list(point.explicit_bounds),
        "counts": list(point.bucket_counts),
    }
    return [json_member("otlp.histogram", buckets | _extremes(point)), *_exemplars(point)]


def _put_exponential(records: Records, row: int, point: Any) -> list[str]:
    buckets: dict[str, AttributeValue] = {
        "count": point.count,
        "scale": point.scale,
        "zero_count": point.zero_count,
        "zero_threshold": point.zero_threshold,
        "positive": {"offset": point.positive.offset, "counts": list(point.positive.bucket_counts)},
        "negative": {"offset": point.negative.offset, "counts": list(point.negative.bucket_counts)},
    }
    return [json_member("otlp.exponential_histogram", buckets | _extremes(point)), *_exemplars(point)]


def _put_summary(records: Records, row: int, point: Any) -> list[str]:
    quantiles: list[AttributeValue] = [[q.quantile, q.value] for q in point.quantile_values]
    facts: dict[str, AttributeValue] = {"count": point.count, "sum": point.sum, "quantiles": quantiles}
    return [json_member("otlp.summary", facts)]


def _extremes(point: Any) -> dict[str, AttributeValue]:
    return {key: getattr(point, key) for key in ("sum", "min", "max") if point.HasField(key)}


def _exemplars(point: Any) -> list[str]:
    if not point.exemplars:
        return []
    exemplars: list[AttributeValue] = [
        {
            "time_ns": exemplar.time_unix_nano,
            "value": getattr(exemplar, exemplar.WhichOneof("value") or "as_double"),
            "trace_id": exemplar.trace_id.hex(),
            "span_id": exemplar.span_id.hex(),
            "attributes": plain_attributes(exemplar.filtered_attributes),
        }
        for exemplar in point.exemplars
    ]
    return [json_member("otlp.exemplars", exemplars)]


_KINDS: Final[dict[str, _Kind]] = {
    "gauge": _Kind("gauge", _put_number),
    "sum": _Kind("sum", _put_number, has_temporality=True),
    "histogram": _Kind("histogram", _put_histogram, has_temporality=True),
    "exponential_histogram": _Kind("exponential_histogram", _put_exponential, has_temporality=True),
    "summary": _Kind("summary", _put_summary),
}
