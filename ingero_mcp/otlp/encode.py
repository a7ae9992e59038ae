"""Events to OTLP request bytes, for everything of ours that sends: the probe daemon, `ingero stress`, the demo.

Needs neither pyarrow nor DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ingero_mcp.events import AttributeValue, Point, Resource, Sample, Span

_SCOPE = InstrumentationScope(name="ingero")


def encode_spans(resource: Resource, spans: Iterable[Span]) -> bytes:
    """An ExportTraceServiceRequest with the spans of one resource."""
    request = ExportTraceServiceRequest()
    scoped = request.resource_spans.add(resource=_resource(resource)).scope_spans.add(scope=_SCOPE)
    scoped.spans.extend(
        SpanMessage(
            name=span.name,
            trace_id=span.trace_id,
            span_id=span.span_id,
            parent_span_id=span.parent_span_id,
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            kind=SpanMessage.SPAN_KIND_INTERNAL,
            attributes=_attributes(span.attributes),
            status=Status(code=Status.STATUS_CODE_ERROR) if span.failed else None,
        )
        for span in spans
    )
    return request.SerializeToString()


def encode_samples(resource: Resource, samples: Iterable[Sample]) -> bytes:
    """An ExportMetricsServiceRequest with the samples of one resource, points of one metric together."""
    request = ExportMetricsServiceRequest()
    scoped = request.resource_metrics.add(resource=_resource(resource)).scope_metrics.add(scope=_SCOPE)
    metrics: dict[tuple[str, str, str], Metric] = {}
    for sample in samples:
        key = (sample.name, sample.unit, sample.kind)
        if key not in metrics:
            metrics[key] = scoped.metrics.add(name=sample.name, unit=sample.unit)
        _points(metrics[key], sample).append(_point(sample))
    return request.SerializeToString()


def encode_points(resource: Resource, points: Iterable[Point]) -> bytes:
    """An ExportLogsServiceRequest with the points in time of one resource."""
    request = ExportLogsServiceRequest()
    scoped = request.resource_logs.add(resource=_resource(resource)).scope_logs.add(scope=_SCOPE)
    scoped.log_records.extend(
        LogRecord(
            event_name=point.name,
            time_unix_nano=point.time_ns,
            attributes=_attributes(point.attributes),
            body=AnyValue(string_value=point.body) if point.body else None,
        )
        for point in points
    )
    return request.SerializeToString()


def _resource(resource: Resource) -> ResourceMessage:
    return ResourceMessage(attributes=_attributes(resource.attributes))


def _points(metric: Metric, sample: Sample):  # type: ignore[no-untyped-def]  # the stubs do not name the container
    if sample.kind == "gauge":
        return metric.gauge.data_points
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = (
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        if sample.kind == "cumulative"
        else AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    )
    return metric.sum.data_points


def _point(sample: Sample) -> NumberDataPoint:
    point = NumberDataPoint(
        time_unix_nano=sample.time_ns,
        start_time_unix_nano=sample.start_ns,
        attributes=_attributes(sample.attributes),
    )
    if isinstance(sample.value, int):
        point.as_int = sample.value
    else:
        point.as_double = sample.value
    return point


def _attributes(attributes: Mapping[str, AttributeValue]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: AttributeValue) -> AnyValue:
    # bool before int: a bool is an int in Python, not on the wire.
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            message = AnyValue()
            message.array_value.values.extend([_value(item) for item in value])
            return message
        case dict():
            message = AnyValue()
            message.kvlist_value.values.extend(_attributes(value))
            return message
