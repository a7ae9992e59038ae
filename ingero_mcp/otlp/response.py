"""The answer to an export request: empty, or how many records were left out and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsPartialSuccess, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from ingero_mcp.otlp.signal import Signal

_PARTIAL: Final[dict[Signal, Callable[[int, str], Message]]] = {
    "traces": lambda rejected, reason: ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=rejected, error_message=reason)
    ),
    "metrics": lambda rejected, reason: ExportMetricsServiceResponse(
        partial_success=ExportMetricsPartialSuccess(rejected_data_points=rejected, error_message=reason)
    ),
    "logs": lambda rejected, reason: ExportLogsServiceResponse(
        partial_success=ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=reason)
    ),
}


def response(signal: Signal, rejected: int, reason: str) -> Message | None:
    """The response message; None if everything was taken (an empty message)."""
    return _PARTIAL[signal](rejected, reason) if rejected else None


def encode_response(signal: Signal, rejected: int, reason: str) -> bytes:
    """The response as protobuf bytes."""
    message = response(signal, rejected, reason)
    return message.SerializeToString() if message else b""
