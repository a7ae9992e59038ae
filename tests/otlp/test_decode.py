"""OTLP bytes become rows: every attribute in its column or in attrs_json, none lost, none invented."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from ingero_mcp.errors import WireError
from ingero_mcp.events import FIRST_SERVER_SEQ, Point, Resource, Sample, Span
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.encode import encode_points, encode_samples, encode_spans
from ingero_mcp.otlp.records import MOST_RECORDS, Arrival
from ingero_mcp.otlp.signal import Signal
from ingero_mcp.semconv import source_of

NOW_NS = 1_796_000_000_000_000_000
ARRIVAL = Arrival(NOW_NS)
NODE = Resource({"ingero.cluster.id": "c1", "ingero.node.id": "n1"})


def rows(signal: Signal, body: bytes) -> list[dict[str, Any]]:
    return Decoder().decode(signal, body, ARRIVAL).batch.to_pylist()


def attrs(row: dict[str, Any]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(row["attrs_json"], parse_constant=pytest.fail)
    return parsed


def test_a_collective_span_fills_its_columns() -> None:
    span = Span(
        "ncclAllReduce",
        NOW_NS - 5000,
        NOW_NS - 1000,
        {
            "nccl.comm_id_hash": "00ff00ff00ff00ff",
            "nccl.seq": 41,
            "nccl.rank": 3,
            "nccl.nranks": 8,
            "nccl.bytes": 4096,
            "ingero.rank": 11,
            "ingero.step": 7,
            "ingero.cpu_ns": 1,
            "ingero.event.seq": 900,
            "ingero.timing_source": "host_api",
        },
        trace_id=bytes(range(16)),
        span_id=bytes(range(8)),
    )
    [row] = rows("traces", encode_spans(NODE, [span]))
    expected = {
        "cluster_id": "c1",
        "node_id": "n1",
        "source": "nccl",
        "metric_name": "ncclAllReduce",
        "timestamp_ns": NOW_NS - 5000,
        "duration_ns": 4000,
        "comm_id": "00ff00ff00ff00ff",
        "coll_seq": 41,
        "rank": 11,
        "nranks": 8,
        "bytes": 4096,
        "step": 7,
        "event_seq": 900,
        "timing_source": "host_api",
        "trace_id": bytes(range(16)).hex(),
        "span_id": bytes(range(8)).hex(),
        "parent_span_id": None,
        "value_double": None,
    }
    assert {key: row[key] for key in expected} == expected
    assert attrs(row)["nccl.rank"] == 3


@pytest.mark.parametrize(
    ("resource", "span", "rank"),
    [
        ({}, {"ingero.rank": 2, "nccl.rank": 1, "nccl.nranks": 8}, 2),
        ({"ingero.world_size": 8}, {"nccl.rank": 1, "nccl.nranks": 8}, 1),
        ({"ingero.world_size": 16}, {"nccl.rank": 1, "nccl.nranks": 8}, None),
        ({"ingero.world_size": 16, "ingero.node.rank": 9}, {"nccl.rank": 1, "nccl.nranks": 8}, 9),
        ({}, {}, None),
    ],
)
def test_the_global_rank_is_taken_from_the_best_evidence(
    resource: dict[str, Any], span: dict[str, Any], rank: int | None
) -> None:
    body = encode_spans(Resource(resource), [Span("ncclAllReduce", NOW_NS, NOW_NS, span)])
    assert rows("traces", body)[0]["rank"] == rank


def test_an_integer_sample_fills_both_values_and_a_float_one() -> None:
    body = encode_samples(NODE, [Sample("a", NOW_NS, 5), Sample("b", NOW_NS, 0.25)])
    first, second = rows("metrics", body)
    assert (first["value_int"], first["value_double"]) == (5, 5.0)
    assert (second["value_int"], second["value_double"]) == (None, 0.25)


def test_both_spellings_of_the_health_score_are_one_metric() -> None:
    body = encode_samples(NODE, [Sample("ingero.health.score", NOW_NS, 0.5)])
    [row] = rows("metrics", body)
    assert (row["metric_name"], row["source"]) == ("ingero.node.health_score", "health")
    assert attrs(row)["otlp.metric.name"] == "ingero.health.score"


def test_a_counter_keeps_its_kind_and_start() -> None:
    body = encode_samples(NODE, [Sample("x.total", NOW_NS, 7, kind="cumulative", start_ns=NOW_NS - 9, unit="1")])
    kept = attrs(rows("metrics", body)[0])
    assert kept["otlp.metric.kind"] == "sum"
    assert kept["otlp.metric.temporality"] == "cumulative"
    assert kept["otlp.metric.monotonic"] is True
    assert kept["otlp.metric.start_time_ns"] == NOW_NS - 9


def test_a_histogram_is_one_row_with_its_buckets() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="gpu.memcpy.duration_ms")
    metric.histogram.data_points.add(
        time_unix_nano=NOW_NS, count=3, sum=6.5, min=1, max=4, bucket_counts=[1, 2], explicit_bounds=[2.5]
    )
    [row] = rows("metrics", request.SerializeToString())
    assert attrs(row)["otlp.histogram"] == {
        "count": 3,
        "sum": 6.5,
        "min": 1.0,
        "max": 4.0,
        "bounds": [2.5],
        "counts": [1, 2],
    }


def test_a_log_record_is_named_by_its_event_and_keeps_its_body() -> None:
    [named] = rows("logs", encode_points(NODE, [Point("probe.gap", NOW_NS, {"probe.lost_events": 3}, body="lost")]))
    assert (named["metric_name"], named["source"]) == ("probe.gap", "probe")
    assert attrs(named) == {"otlp.log.body": "lost", "probe.lost_events": 3, "otlp.scope.name": "ingero"}
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=NOW_NS)
    assert rows("logs", request.SerializeToString())[0]["metric_name"] == "log"


def test_a_missing_resource_is_unknown_and_fallbacks_are_taken_in_order() -> None:
    span = [Span("x", NOW_NS, NOW_NS)]
    bare = rows("traces", encode_spans(Resource({}), span))[0]
    assert (bare["cluster_id"], bare["node_id"]) == ("unknown", "unknown")
    host = rows("traces", encode_spans(Resource({"host.id": "i", "host.name": "h", "k8s.cluster.name": "k"}), span))[0]
    assert (host["cluster_id"], host["node_id"]) == ("k", "h")
    assert attrs(host)["host.id"] == "i"


def test_a_span_cannot_rename_the_node_that_sent_it() -> None:
    span = Span("x", NOW_NS, NOW_NS, {"host.name": "upstream.example"})
    [row] = rows("traces", encode_spans(NODE, [span]))
    assert row["node_id"] == "n1"
    assert attrs(row)["host.name"] == "upstream.example"


def test_a_chain_id_is_a_column_and_stays_in_json() -> None:
    [row] = rows("metrics", encode_samples(NODE, [Sample("m", NOW_NS, 1.0, {"causal_chain_id": "n1:c"})]))
    assert row["causal_chain_id"] == "n1:c"
    assert attrs(row)["causal_chain_id"] == "n1:c"


@pytest.mark.parametrize("time_ns", [0, 123_456, NOW_NS + 2 * 86_400 * 10**9, 2**63 + 5])
def test_an_implausible_time_becomes_the_receive_time_and_is_counted(time_ns: int) -> None:
    decoded = Decoder().decode("metrics", encode_samples(NODE, [Sample("m", time_ns, 1.0)]), ARRIVAL)
    [row] = decoded.batch.to_pylist()
    assert row["timestamp_ns"] == NOW_NS
    assert attrs(row)["otlp.time_raw_ns"] == time_ns
    assert decoded.repaired_times == 1


def test_a_span_that_ends_before_it_starts_has_no_duration() -> None:
    [row] = rows("traces", encode_spans(NODE, [Span("x", NOW_NS, NOW_NS - 1)]))
    assert row["duration_ns"] is None
    assert attrs(row)["otlp.span.end_raw_ns"] == NOW_NS - 1


def test_an_id_of_the_wrong_length_costs_nobody_their_row() -> None:
    spans = [Span("good", NOW_NS, NOW_NS, trace_id=b"\1" * 16), Span("odd", NOW_NS, NOW_NS, trace_id=b"\2" * 32)]
    good, odd = rows("traces", encode_spans(NODE, spans))
    assert good["trace_id"] == "01" * 16
    assert odd["trace_id"] is None
    assert attrs(odd)["otlp.trace_id_raw"] == "02" * 32


def test_of_a_repeated_key_the_last_wins_and_the_others_are_kept() -> None:
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(name="x", start_time_unix_nano=NOW_NS, end_time_unix_nano=NOW_NS)
    )
    for value in ("one", "two", "three"):
        span.attributes.append(KeyValue(key="k", value=AnyValue(string_value=value)))
    [row] = rows("traces", request.SerializeToString())
    assert attrs(row)["k"] == "three"
    assert attrs(row)["otlp.duplicate_keys"] == {"k": ["one", "two"]}


def test_a_record_that_hides_a_resource_attribute_keeps_both() -> None:
    resource = Resource({"service.name": "outer", "ingero.job.id": "j1"})
    [row] = rows(
        "traces", encode_spans(resource, [Span("x", NOW_NS, NOW_NS, {"service.name": "inner", "ingero.job.id": "j2"})])
    )
    assert row["job_id"] == "j2"
    kept = attrs(row)
    assert kept["service.name"] == "inner"
    assert kept["otlp.resource.attribute.service.name"] == "outer"
    assert kept["otlp.resource.attribute.ingero.job.id"] == "j1"


@pytest.mark.parametrize(
    ("key", "value", "column"),
    [
        ("ingero.rank", "five", None),
        ("ingero.rank", 2**40, None),
        ("ingero.rank", "5", 5),
        ("ingero.rank", 5.0, 5),
        ("ingero.rank", True, None),
        ("ingero.rank", "--5", None),
        ("process.pid", -1, -1),
    ],
)
def test_a_value_that_does_not_fit_its_column_stays_in_json(key: str, value: Any, column: int | None) -> None:
    [row] = rows("traces", encode_spans(NODE, [Span("x", NOW_NS, NOW_NS, {key: value})]))
    assert row["rank" if key == "ingero.rank" else "pid"] == column
    if type(value) is not int or column is None:
        assert attrs(row)[key] == value


def test_a_producer_cannot_claim_the_servers_sequence_numbers() -> None:
    [row] = rows("traces", encode_spans(NODE, [Span("x", NOW_NS, NOW_NS, {"ingero.event.seq": FIRST_SERVER_SEQ})]))
    assert row["event_seq"] is None
    assert attrs(row)["ingero.event.seq"] == FIRST_SERVER_SEQ


def test_non_finite_numbers_survive_and_json_stays_strict() -> None:
    body = encode_samples(NODE, [Sample("m", NOW_NS, float("nan"), {"limit": float("inf")})])
    [row] = rows("metrics", body)
    assert row["value_double"] != row["value_double"]
    assert attrs(row)["limit"] == {"otlp.double": "Infinity"}


def test_nested_and_binary_attributes_are_kept() -> None:
    value: Any = {"list": [1, "two", None], "raw": b"\0\xff"}
    [row] = rows("traces", encode_spans(NODE, [Span("x", NOW_NS, NOW_NS, {"deep": value})]))
    assert attrs(row)["deep"] == {"list": [1, "two", None], "raw": {"otlp.bytes": "AP8="}}


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_bytes_that_are_not_otlp_are_refused(signal: Signal) -> None:
    with pytest.raises(WireError, match=f"not an OTLP {signal} export request"):
        Decoder().decode(signal, b"\xff\xff\xff\xff hello", ARRIVAL)


def test_an_empty_request_is_an_empty_batch() -> None:
    assert Decoder().decode("traces", b"", ARRIVAL).batch.num_rows == 0


@pytest.mark.parametrize("rank", [2**40, -(2**40), True, "7"])
def test_a_rank_that_cannot_be_one_costs_nobody_the_batch(rank: Any) -> None:
    resource = Resource({"ingero.world_size": 8, "ingero.node.rank": rank})
    spans = [Span("ncclAllReduce", NOW_NS, NOW_NS, {"nccl.rank": rank, "nccl.nranks": 8}), Span("x", NOW_NS, NOW_NS)]
    assert [row["rank"] for row in rows("traces", encode_spans(resource, spans))] == [None, None]


def test_a_span_without_a_start_has_no_duration_of_decades() -> None:
    [row] = rows("traces", encode_spans(NODE, [Span("x", 0, NOW_NS)]))
    assert row["duration_ns"] is None
    assert attrs(row)["otlp.span.end_raw_ns"] == NOW_NS


def test_a_request_of_too_many_records_is_refused_before_it_takes_memory() -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for _ in range(MOST_RECORDS + 1):
        spans.add()
    with pytest.raises(WireError, match=f"the limit is {MOST_RECORDS}"):
        rows("traces", request.SerializeToString())


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ncclAllReduce", "nccl"),
        ("nccl.collective.duration_ms", "nccl"),
        ("cudaMalloc", "cuda"),
        ("cudaGraphLaunch", "graph"),
        ("cuLaunchKernel", "driver"),
        ("cumulative.thing", "otlp"),
        ("computer", "otlp"),
        ("compute", "gpu"),
        ("gpu.power.draw_w", "gpu"),
        ("ingero.node.health_score", "health"),
        ("x" * 1_000_000, "otlp"),
        ("", "otlp"),
    ],
)
def test_the_source_of_a_name(name: str, source: str) -> None:
    assert source_of(name) == source
