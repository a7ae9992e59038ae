"""What the OpenTelemetry SDK sends, over gRPC and HTTP, is stored and read back equal."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Status, StatusCode

from ingero_mcp.run_file import RunningServer
from tests.conftest import RunServer

RESOURCE = Resource.create({"service.name": "train", "host.name": "gpu-7", "k8s.cluster.name": "east"})


@pytest.fixture
def server(run_server: RunServer) -> Iterator[RunningServer]:
    with run_server() as started:
        yield started


@pytest.fixture(params=["grpc", "http"])
def exporters(request: pytest.FixtureRequest, server: RunningServer) -> tuple[Any, Any, Any]:
    if request.param == "grpc":
        target: dict[str, Any] = {"endpoint": server.otlp_addr, "insecure": True}
        return GrpcSpans(**target), GrpcMetrics(**target), GrpcLogs(**target)
    url = server.otlp_http_url
    return (
        HttpSpans(endpoint=f"{url}/v1/traces"),
        HttpMetrics(endpoint=f"{url}/v1/metrics"),
        HttpLogs(endpoint=f"{url}/v1/logs"),
    )


def stored(server: RunningServer, where: str) -> list[dict[str, Any]]:
    sql = f"SELECT * FROM events WHERE {where} ORDER BY timestamp_ns"
    answer = httpx2.post(f"{server.url}/api/v1/query", json={"sql": sql}).json()
    rows = [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
    return [row | {"attrs": json.loads(row["attrs_json"])} for row in rows]


def test_spans_with_events_links_and_status(server: RunningServer, exporters: tuple[Any, Any, Any]) -> None:
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(BatchSpanProcessor(exporters[0]))
    tracer = provider.get_tracer("tests", "1.2")
    with tracer.start_as_current_span("outer") as outer:
        link = Link(outer.get_span_context(), {"why": "because"})
        with tracer.start_as_current_span("inner", links=[link], attributes={"list": [1, 2], "flag": True}) as inner:
            inner.add_event("happened", {"n": 3})
            inner.set_status(Status(StatusCode.ERROR, "no luck"))
    provider.shutdown()
    inner_row, outer_row = sorted(stored(server, "source = 'otlp'"), key=lambda row: row["metric_name"])
    assert inner_row["trace_id"] == outer_row["trace_id"] == f"{outer.get_span_context().trace_id:032x}"
    assert inner_row["parent_span_id"] == outer_row["span_id"]
    assert (inner_row["status"], inner_row["attrs"]["otlp.span.status_message"]) == ("error", "no luck")
    assert (inner_row["node_id"], inner_row["cluster_id"]) == ("gpu-7", "east")
    assert inner_row["attrs"]["list"] == [1, 2] and inner_row["attrs"]["flag"] is True
    assert inner_row["attrs"]["otlp.span.events"][0]["attributes"] == {"n": 3}
    assert inner_row["attrs"]["otlp.span.links"][0]["attributes"] == {"why": "because"}
    assert (inner_row["attrs"]["otlp.scope.name"], inner_row["attrs"]["otlp.scope.version"]) == ("tests", "1.2")
    assert inner_row["attrs"]["service.name"] == "train"
    assert 0 < inner_row["duration_ns"] <= outer_row["duration_ns"]


def test_every_kind_of_metric(server: RunningServer, exporters: tuple[Any, Any, Any]) -> None:
    reader = PeriodicExportingMetricReader(exporters[1], export_interval_millis=3_600_000)
    view = View(instrument_type=Histogram, instrument_name="exp", aggregation=ExponentialBucketHistogramAggregation())
    provider = MeterProvider(metric_readers=[reader], resource=RESOURCE, views=[view])
    meter = provider.get_meter("tests")
    meter.create_counter("total", unit="1").add(5, {"k": "v"})
    meter.create_up_down_counter("level").add(-2)
    meter.create_gauge("now").set(0.25)
    for name in ("exp", "hist"):
        histogram = meter.create_histogram(name)
        for value in (1.0, 30.0):
            histogram.record(value)
    provider.shutdown()
    by_name = {row["metric_name"]: row for row in stored(server, "true")}
    total = by_name["total"]
    assert (total["value_int"], total["value_double"], total["attrs"]["k"]) == (5, 5.0, "v")
    assert total["attrs"]["otlp.metric.temporality"] == "cumulative" and total["attrs"]["otlp.metric.monotonic"]
    assert by_name["level"]["value_int"] == -2 and not by_name["level"]["attrs"]["otlp.metric.monotonic"]
    assert by_name["now"]["value_double"] == 0.25
    assert by_name["hist"]["attrs"]["otlp.histogram"]["count"] == 2
    assert by_name["hist"]["attrs"]["otlp.histogram"]["sum"] == 31.0
    assert sum(by_name["hist"]["attrs"]["otlp.histogram"]["counts"]) == 2
    assert by_name["exp"]["attrs"]["otlp.exponential_histogram"]["count"] == 2


def test_log_records_with_names_bodies_and_severities(
    server: RunningServer, exporters: tuple[Any, Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporters[2]))
    logger = provider.get_logger("tests")
    logger.emit(
        LogRecord(
            timestamp=1_796_000_000_000_000_000,
            severity_number=SeverityNumber.WARN,
            severity_text="WARN",
            body={"deep": [1, {"x": "y"}]},
            attributes={"gpu.xid.code": 79},
            event_name="gpu.xid",
        )
    )
    provider.shutdown()
    [row] = stored(server, "metric_name = 'gpu.xid'")
    assert (row["source"], row["timestamp_ns"]) == ("gpu", 1_796_000_000_000_000_000)
    assert row["attrs"]["otlp.log.body"] == {"deep": [1, {"x": "y"}]}
    assert row["attrs"]["otlp.log.severity_number"] == 13 and row["attrs"]["otlp.log.severity_text"] == "WARN"
    assert row["attrs"]["gpu.xid.code"] == 79
