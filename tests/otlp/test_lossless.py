"""Whatever a valid OTLP message says is in the row that it becomes, and what we encode we decode."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from ingero_mcp.events import STORED, Point, Resource, Sample, Span
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.encode import encode_points, encode_samples, encode_spans
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.otlp.signal import Signal

NOW_NS = 1_796_000_000_000_000_000
COLUMN_OF = {column.attributes[0]: column.name for column in STORED if column.attributes}
KEYS = st.one_of(
    st.sampled_from(sorted(key for column in STORED for key in column.attributes)),
    st.sampled_from(["nccl.rank", "otlp.metric.kind", "otlp.x", "event.name", "", 'quo"te', "\0", "k"]),
    st.text(max_size=5),
)
TEXTS = st.text(max_size=8)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.one_of(
    st.builds(lambda v: AnyValue(string_value=v), TEXTS),
    st.builds(lambda v: AnyValue(int_value=v), INTEGERS),
    st.builds(lambda v: AnyValue(double_value=v), st.floats()),
    st.builds(lambda v: AnyValue(bool_value=v), st.booleans()),
    st.builds(lambda v: AnyValue(bytes_value=v), st.binary(max_size=8)),
    st.just(AnyValue()),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(lambda v: AnyValue(array_value=ArrayValue(values=v)), st.lists(inner, max_size=3)),
        st.builds(
            lambda v: AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=k, value=x) for k, x in v.items()])),
            st.dictionaries(TEXTS, inner, max_size=3),
        ),
    ),
    max_leaves=6,
)
ATTRIBUTES = st.lists(st.builds(lambda k, v: KeyValue(key=k, value=v), KEYS, VALUES), max_size=6)
TIMES = st.one_of(st.integers(0, 2**64 - 1), st.integers(NOW_NS - 10**12, NOW_NS))
IDS = st.one_of(st.just(b""), st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.binary())


def plain(value: AnyValue) -> Any:
    """An AnyValue as the row's JSON has to say it: written here again, from the specification."""
    kind = value.WhichOneof("value")
    match kind:
        case None:
            return None
        case "bytes_value":
            return {"otlp.bytes": b64encode(value.bytes_value).decode()}
        case "double_value" if not math.isfinite(value.double_value):
            number = value.double_value
            return {"otlp.double": "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"}
        case "array_value":
            return [plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
        case _:
            return getattr(value, kind)


def decode(signal: Signal, body: bytes) -> list[dict[str, Any]]:
    rows = Decoder().decode(signal, body, Arrival(NOW_NS)).batch.to_pylist()
    for row in rows:
        row["attrs"] = json.loads(row["attrs_json"], parse_constant=pytest.fail, object_pairs_hook=no_repeats)
    return rows


def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice in one JSON object: {keys}"
    return dict(pairs)


def assert_held(row: dict[str, Any], attributes: Iterable[KeyValue], hidden_by: set[str], prefix: str = "") -> None:
    """Every attribute is in its column, in attrs_json, or among those that another one displaced."""
    last = {pair.key: pair for pair in attributes}
    for key, pair in last.items():
        value = plain(pair.value)
        if key in hidden_by:
            assert row["attrs"][f"{prefix}{key}"] == value
            continue
        json_key = f"otlp.attribute.{key}" if key.startswith("otlp.") else key
        in_column = key in COLUMN_OF and row[COLUMN_OF[key]] == value and type(value) in (int, str)
        assert in_column or row["attrs"].get(json_key, "absent") == value, (key, value)


def assert_origin(row: dict[str, Any], holder: Any, scoped: Any, record_keys: set[str]) -> None:
    assert_held(row, holder.resource.attributes, record_keys, "otlp.resource.attribute.")
    assert row["attrs"].get("otlp.resource.schema_url", "") == holder.schema_url
    assert row["attrs"].get("otlp.scope.schema_url", "") == scoped.schema_url
    assert row["attrs"].get("otlp.scope.name", "") == scoped.scope.name
    kept = row["attrs"].get("otlp.scope.attributes", {})
    assert kept == {pair.key: plain(pair.value) for pair in scoped.scope.attributes}


def assert_time(row: dict[str, Any], time_ns: int) -> None:
    assert row["attrs"].get("otlp.time_raw_ns", row["timestamp_ns"]) == time_ns


def assert_id(row: dict[str, Any], column: str, raw: bytes) -> None:
    assert (row[column] or row["attrs"].get(f"otlp.{column}_raw", "")) == raw.hex()


def unique(attributes: list[KeyValue]) -> list[KeyValue]:
    return list({pair.key: pair for pair in attributes}.values())


@st.composite
def described(draw: st.DrawFn, holder: Any, scoped: Any) -> None:
    """Fill in a resource and a scope. The two spellings of a chain id stay apart: they share one JSON key."""
    holder.resource.attributes.extend(unique(draw(ATTRIBUTES)))
    holder.schema_url = draw(TEXTS)
    scoped.schema_url = draw(TEXTS)
    scoped.scope.name = draw(TEXTS)
    scoped.scope.attributes.extend(unique(draw(ATTRIBUTES)))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_span_is_decoded_without_loss(data: st.DataObject) -> None:
    request = ExportTraceServiceRequest()
    holder = request.resource_spans.add()
    scoped = holder.scope_spans.add()
    data.draw(described(holder, scoped))
    for _ in range(data.draw(st.integers(1, 3))):
        span = scoped.spans.add(
            name=data.draw(TEXTS),
            start_time_unix_nano=data.draw(TIMES),
            end_time_unix_nano=data.draw(TIMES),
            trace_id=data.draw(IDS),
            span_id=data.draw(IDS),
            parent_span_id=data.draw(IDS),
            kind=data.draw(st.integers(0, 5)),
            attributes=unique(data.draw(ATTRIBUTES)),
        )
        span.events.add(name=data.draw(TEXTS), attributes=unique(data.draw(ATTRIBUTES)))
    for row, span in zip(decode("traces", request.SerializeToString()), scoped.spans, strict=True):
        assert row["metric_name"] == span.name
        assert_time(row, span.start_time_unix_nano)
        end_ns = row["attrs"].get("otlp.span.end_raw_ns")
        assert end_ns == span.end_time_unix_nano or row["duration_ns"] == (
            span.end_time_unix_nano - span.start_time_unix_nano
        )
        for column in ("trace_id", "span_id", "parent_span_id"):
            assert_id(row, column, getattr(span, column))
        assert row["attrs"].get("otlp.span.kind", span.kind if span.kind <= 1 else None) == span.kind
        [event] = row["attrs"]["otlp.span.events"]
        assert event["attributes"] == {pair.key: plain(pair.value) for pair in span.events[0].attributes}
        keys = {pair.key for pair in span.attributes}
        assert_held(row, span.attributes, set())
        assert_origin(row, holder, scoped, keys)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_number_is_decoded_without_loss(data: st.DataObject) -> None:
    request = ExportMetricsServiceRequest()
    holder = request.resource_metrics.add()
    scoped = holder.scope_metrics.add()
    data.draw(described(holder, scoped))
    metric = scoped.metrics.add(name=data.draw(TEXTS), unit=data.draw(TEXTS), description=data.draw(TEXTS))
    point = metric.gauge.data_points.add(
        time_unix_nano=data.draw(TIMES), attributes=unique(data.draw(ATTRIBUTES)), flags=data.draw(st.integers(0, 1))
    )
    if data.draw(st.booleans()):
        point.as_int = data.draw(INTEGERS)
    else:
        point.as_double = data.draw(st.floats())
    [row] = decode("metrics", request.SerializeToString())
    if point.WhichOneof("value") == "as_int":
        assert row["value_int"] == point.as_int
    else:
        assert row["value_double"] == point.as_double or math.isnan(row["value_double"]) == math.isnan(point.as_double)
    assert row["metric_name"] == metric.name
    assert row["attrs"].get("otlp.metric.unit", "") == metric.unit
    assert row["attrs"].get("otlp.metric.description", "") == metric.description
    assert_time(row, point.time_unix_nano)
    assert_held(row, point.attributes, set())
    assert_origin(row, holder, scoped, {pair.key for pair in point.attributes})


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_log_record_is_decoded_without_loss(data: st.DataObject) -> None:
    request = ExportLogsServiceRequest()
    holder = request.resource_logs.add()
    scoped = holder.scope_logs.add()
    data.draw(described(holder, scoped))
    record = scoped.log_records.add(
        time_unix_nano=data.draw(TIMES),
        observed_time_unix_nano=data.draw(TIMES),
        event_name=data.draw(TEXTS),
        severity_text=data.draw(TEXTS),
        severity_number=data.draw(st.integers(0, 24)),  # type: ignore[arg-type]
        body=data.draw(VALUES),
        attributes=unique(data.draw(ATTRIBUTES)),
        trace_id=data.draw(IDS),
    )
    [row] = decode("logs", request.SerializeToString())
    assert row["attrs"]["otlp.log.body"] == plain(record.body)
    assert row["attrs"].get("otlp.log.severity_text", "") == record.severity_text
    assert row["attrs"].get("otlp.log.severity_number", 0) == record.severity_number
    assert_time(row, record.time_unix_nano or record.observed_time_unix_nano)
    assert_id(row, "trace_id", record.trace_id)
    assert_held(row, record.attributes, set())
    assert_origin(row, holder, scoped, {pair.key for pair in record.attributes})


OUR_KEYS = st.sampled_from(sorted(COLUMN_OF))


def fitting(key: str) -> st.SearchStrategy[Any]:
    column = next(column for column in STORED if column.attributes and column.attributes[0] == key)
    bounds = {"BIGINT": (0, 2**52 - 1), "INTEGER": (-(2**31), 2**31 - 1)}
    return st.integers(*bounds[column.type]) if column.type in bounds else st.text(max_size=8)


OURS = st.lists(OUR_KEYS, unique=True).flatmap(lambda keys: st.fixed_dictionaries({key: fitting(key) for key in keys}))
WHEN = st.integers(NOW_NS - 10**15, NOW_NS)


@given(OURS, WHEN, st.integers(0, 10**12), st.text(min_size=1, max_size=20))
@settings(max_examples=150, deadline=None)
def test_our_own_events_come_back_as_they_were(
    attributes: dict[str, Any], start_ns: int, length_ns: int, name: str
) -> None:
    resource = Resource({})
    [span] = decode("traces", encode_spans(resource, [Span(name, start_ns, start_ns + length_ns, attributes)]))
    [sample] = decode("metrics", encode_samples(resource, [Sample(name, start_ns, length_ns, attributes)]))
    [point] = decode("logs", encode_points(resource, [Point(name, start_ns, attributes)]))
    assert (span["duration_ns"], sample["value_int"]) == (length_ns, length_ns)
    for row in (span, sample, point):
        assert row["timestamp_ns"] == start_ns
        assert {key: row[COLUMN_OF[key]] for key in attributes} == attributes
    assert span["metric_name"] == point["metric_name"] == name
