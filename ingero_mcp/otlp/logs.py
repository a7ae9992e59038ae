"""OTLP log records to rows: points in time, named by their event name."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.otlp.attributes import AttributeCache, json_member, plain_value
from ingero_mcp.otlp.messages import LogsRequest
from ingero_mcp.otlp.records import SLOT, Arrival, Origin, Records
from ingero_mcp.otlp.spans import put_id

EVENT_NAME: Final = "event.name"
UNNAMED: Final = "log"
_NAME, _SOURCE = SLOT["metric_name"], SLOT["source"]
_TRACE_ID, _SPAN_ID = SLOT["trace_id"], SLOT["span_id"]


def decode_logs(body: bytes, arrival: Arrival, cache: AttributeCache) -> Records:
    """Rows of an ExportLogsServiceRequest; a record without an event name is called `log`."""
    request: Any = LogsRequest.FromString(body)
    scopes = [(resource, scoped) for resource in request.resource_logs for scoped in resource.scope_logs]
    records = Records(sum(len(scoped.log_records) for _, scoped in scopes), arrival, cache)
    for resource, scoped in scopes:
        origin = records.origin(resource, scoped)
        records.each(scoped.log_records, partial(_put, records, origin))
    return records


def _put(records: Records, origin: Origin, row: int, record: Any) -> None:
    members = _members(record)
    records.put_time(row, record.time_unix_nano or record.observed_time_unix_nano, members)
    put_id(records.columns[_TRACE_ID], row, record.trace_id, 16, "otlp.trace_id_raw", members)
    put_id(records.columns[_SPAN_ID], row, record.span_id, 8, "otlp.span_id_raw", members)
    found = records.fill(row, origin, record.attributes, members)
    named = found.get(EVENT_NAME)
    name = record.event_name or (named.value if named and isinstance(named.value, str) else "") or UNNAMED
    records.columns[_NAME][row] = name
    records.columns[_SOURCE][row] = semconv.source_of(name)


def _members(record: Any) -> list[str]:
    members: list[str] = []
    if record.HasField("body"):
        members.append(json_member("otlp.log.body", plain_value(record.body)))
    if record.time_unix_nano and record.observed_time_unix_nano:
        members.append(json_member("otlp.log.observed_time_ns", record.observed_time_unix_nano))
    rest = ("severity_number", "severity_text", "flags", "dropped_attributes_count")
    members += [json_member(f"otlp.log.{key}", getattr(record, key)) for key in rest if getattr(record, key)]
    return members
