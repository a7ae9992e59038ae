"""OTLP/JSON to the same request in protobuf, so that one decoder serves both.

Ids are hex (not base64, as in protobuf's own JSON mapping), 64-bit integers may be strings or numbers, unknown fields
are ignored. A record that cannot be read is left out and counted; the others of its request are kept.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingero_mcp.errors import WireError
from ingero_mcp.otlp.signal import Signal

_REQUESTS: Final[dict[Signal, type[Message]]] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}
# From the request down to its records, as lists in lists; metric points lie one level deeper, under their kind.
_PATHS: Final[dict[Signal, tuple[str, str, str]]] = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}
_KINDS: Final = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
_IDS: Final = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})


@dataclass(frozen=True, slots=True)
class FromJson:
    """`body` is the request in protobuf; `rejected` records were unusable, the first because of `reason`."""

    body: bytes
    rejected: int = 0
    reason: str = ""


def from_json(signal: Signal, body: bytes) -> FromJson:
    """The request in protobuf. WireError if the body is not such a request at all."""
    try:
        # Unquoted NaN and Infinity are not JSON, but some encoders write them; quoted they are OTLP.
        content = json.loads(body, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the body is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise WireError(f"the body is not an OTLP {signal} export request: it is not a JSON object")
    _restate_ids(content)
    try:
        return FromJson(_encode(signal, content))
    except ParseError as error:
        rejected = _drop_unusable(signal, content)
        if not rejected:
            raise WireError(f"the body is not an OTLP {signal} export request: {error}") from error
        return FromJson(_encode_or_refuse(signal, content), rejected, str(error))


def _encode(signal: Signal, content: dict[str, Any]) -> bytes:
    return ParseDict(content, _REQUESTS[signal](), ignore_unknown_fields=True).SerializeToString()


def _encode_or_refuse(signal: Signal, content: dict[str, Any]) -> bytes:
    try:
        return _encode(signal, content)
    except ParseError as error:
        raise WireError(f"the body is not an OTLP {signal} export request: {error}") from error


def _restate_ids(value: Any) -> None:
    """Ids from hex to the base64 that protobuf's JSON mapping wants, in place, at any depth."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, dict):
            for key, held in item.items():
                if key in _IDS and isinstance(held, str):
                    item[key] = _base64_of_hex(held)
                elif isinstance(held, dict | list):
                    pending.append(held)


def _base64_of_hex(text: str) -> str:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = text.encode()  # no id at all: of the wrong length too, so the decoder keeps it as it came
    return b64encode(raw).decode()


def _drop_unusable(signal: Signal, content: dict[str, Any]) -> int:
    """Remove the records that cannot be read on their own; returns how many there were."""
    rejected = 0
    for holder, key, wrap in _record_lists(signal, content):
        usable = [record for record in holder[key] if _parses(signal, wrap([record]))]
        rejected += len(holder[key]) - len(usable)
        holder[key] = usable
    return rejected


def _record_lists(
    signal: Signal, content: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], str, Callable[[list[object]], dict[str, Any]]]]:
    """Every object that holds a list of records, the key of that list, and how to make a request of such a list."""
    resources, scopes, records = _PATHS[signal]

    def request_of(held: list[object]) -> dict[str, Any]:
        return {resources: [{scopes: [{records: held}]}]}

    def request_of_points(kind: str) -> Callable[[list[object]], dict[str, Any]]:
        return lambda points: request_of([{kind: {"dataPoints": points}}])

    for resource in _objects(content, resources):
        for scope in _objects(resource, scopes):
            if signal != "metrics" and isinstance(scope.get(records), list):
                yield scope, records, request_of
            for metric in _objects(scope, records) if signal == "metrics" else []:
                for kind in _KINDS:
                    points = metric.get(kind)
                    if isinstance(points, dict) and isinstance(points.get("dataPoints"), list):
                        yield points, "dataPoints", request_of_points(kind)


def _objects(holder: dict[str, Any], key: str) -> list[dict[str, Any]]:
    held = holder.get(key)
    return [item for item in held if isinstance(item, dict)] if isinstance(held, list) else []


def _parses(signal: Signal, content: dict[str, Any]) -> bool:
    try:
        _encode(signal, content)
    except ParseError:
        return False
    return True
