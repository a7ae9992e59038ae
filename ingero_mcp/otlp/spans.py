"""OTLP spans to rows."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue
from ingero_mcp.otlp.attributes import AttributeCache, json_member, plain_attributes
from ingero_mcp.otlp.messages import TraceRequest
from ingero_mcp.otlp.records import DAY_NS, SLOT, Arrival, Origin, Records

_NAME, _SOURCE, _STATUS = SLOT["metric_name"], SLOT["source"], SLOT["status"]
_DURATION = SLOT["duration_ns"]
_TRACE_ID, _SPAN_ID, _PARENT = SLOT["trace_id"], SLOT["span_id"], SLOT["parent_span_id"]
_STATUS_NAMES: Final = {1: "ok", 2: "error"}
_INTERNAL_KIND: Final = 1


def decode_spans(body: bytes, arrival: Arrival, cache: AttributeCache) -> Records:
    """Rows of an ExportTraceServiceRequest."""
    request: Any = TraceRequest.FromString(body)
    total = sum(len(scoped.spans) for resource in request.resource_spans for scoped in resource.scope_spans)
    records = Records(total, arrival, cache)
    for resource in request.resource_spans:
        for scoped in resource.scope_spans:
            origin = records.origin(resource, scoped)
            records.each(scoped.spans, partial(_put, records, origin))
    return records


def _put(records: Records, origin: Origin, row: int, span: Any) -> None:
    members = _members(span)
    _put_span(records, row, span, members)
    found = records.fill(row, origin, span.attributes, members)
    code = found.get(semconv.CUDA_RETURN_CODE)
    if code is not None and records.columns[_STATUS][row] is None:
        records.columns[_STATUS][row] = "ok" if code.value == 0 else "error"


def _put_span(records: Records, row: int, span: Any, members: list[str]) -> None:
    columns = records.columns
    name = span.name
    columns[_NAME][row] = name
    columns[_SOURCE][row] = semconv.source_of(name)
    start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
    is_plausible = records.put_time(row, start_ns, members)
    # A start of 0 with a real end is no span of 57 years.
    if 0 <= end_ns - start_ns < (2**63 if is_plausible else DAY_NS):
        columns[_DURATION][row] = end_ns - start_ns
    else:
        members.append(json_member("otlp.span.end_raw_ns", end_ns))
    put_id(columns[_TRACE_ID], row, span.trace_id, 16, "otlp.trace_id_raw", members)
    put_id(columns[_SPAN_ID], row, span.span_id, 8, "otlp.span_id_raw", members)
    put_id(columns[_PARENT], row, span.parent_span_id, 8, "otlp.parent_span_id_raw", members)
    if span.HasField("status"):
        columns[_STATUS][row] = _STATUS_NAMES.get(span.status.code)
        if span.status.message:
            members.append(json_member("otlp.span.status_message", span.status.message))


def put_id(column: list[Any], row: int, raw: bytes, size: int, json_key: str, members: list[str]) -> None:
    """A trace or span id as hex; one of the wrong length is kept raw in JSON and costs nobody else their row."""
    if len(raw) == size:
        column[row] = raw.hex()
    elif raw:
        members.append(json_member(json_key, raw.hex()))


def _members(span: Any) -> list[str]:
    """What of a span has neither column nor attribute; empty for the spans of our own daemon."""
    members: list[str] = []
    if span.events:
        members.append(json_member("otlp.span.events", [_event(event) for event in span.events]))
    if span.links:
        members.append(json_member("otlp.span.links", [_link(link) for link in span.links]))
    if span.kind > _INTERNAL_KIND:
        members.append(json_member("otlp.span.kind", span.kind))
    if span.trace_state:
        members.append(json_member("otlp.span.trace_state", span.trace_state))
    if span.flags:
        members.append(json_member("otlp.span.flags", span.flags))
    dropped = ("dropped_attributes_count", "dropped_events_count", "dropped_links_count")
    members += [json_member(f"otlp.span.{key}", getattr(span, key)) for key in dropped if getattr(span, key)]
    return members


def _event(event: Any) -> AttributeValue:
    return {
        "name": event.name,
        "time_ns": event.time_unix_nano,
        "attributes": plain_attributes(event.attributes),
        "dropped_attributes_count": event.dropped_attributes_count,
    }


def _link(link: Any) -> AttributeValue:
    return {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "trace_state": link.trace_state,
        "attributes": plain_attributes(link.attributes),
        "dropped_attributes_count": link.dropped_attributes_count,
        "flags": link.flags,
    }
