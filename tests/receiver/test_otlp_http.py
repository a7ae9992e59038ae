"""OTLP/HTTP: both encodings, gzip, limits while inflating, and what one bad record costs (nothing but itself)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ingero_mcp.events import Resource, Sample, Span
from ingero_mcp.otlp.encode import encode_samples, encode_spans
from ingero_mcp.run_file import RunningServer
from tests.conftest import RunServer

NOW_NS = 1_796_000_000_000_000_000
JSON = {"Content-Type": "application/json"}
PROTOBUF = {"Content-Type": "application/x-protobuf"}
NODE = Resource({"ingero.cluster.id": "c", "ingero.node.id": "n"})
SAMPLE = encode_samples(NODE, [Sample("m", NOW_NS, 1.0)])


@pytest.fixture
def server(run_server: RunServer) -> Iterator[RunningServer]:
    with run_server(max_message_mib=1) as started:
        yield started


def post(server: RunningServer, signal: str, body: bytes, headers: dict[str, str], query: str = "") -> httpx2.Response:
    return httpx2.post(f"{server.otlp_http_url}/v1/{signal}{query}", content=body, headers=headers, timeout=30)


def rows(server: RunningServer, columns: str) -> list[list[Any]]:
    sql = f"SELECT {columns} FROM events ORDER BY event_seq"
    answer = httpx2.post(f"{server.url}/api/v1/query", json={"sql": sql}).json()
    stored: list[list[Any]] = answer["rows"]
    return stored


def point(value: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"timeUnixNano": str(NOW_NS), **value, **more}


def metrics(*points: dict[str, Any], resource: dict[str, Any] | None = None) -> bytes:
    scope = {"metrics": [{"name": "g", "gauge": {"dataPoints": list(points)}}]}
    return json.dumps({"resourceMetrics": [{**(resource or {}), "scopeMetrics": [scope]}]}).encode()


def test_protobuf_and_json_are_stored_alike_and_answered_in_kind(server: RunningServer) -> None:
    first = post(server, "metrics", SAMPLE, PROTOBUF)
    second = post(server, "metrics", metrics(point({"asDouble": 2.5})), JSON)
    assert (first.status_code, first.headers["content-type"], first.content) == (200, "application/x-protobuf", b"")
    assert (second.status_code, second.json()) == (200, {})
    assert rows(server, "metric_name, value_double, node_id") == [["m", 1.0, "n"], ["g", 2.5, "unknown"]]


def test_64_bit_integers_come_as_strings_or_numbers(server: RunningServer) -> None:
    body = metrics(
        point({"asInt": "9007199254740993"}, attributes=[{"key": "a", "value": {"intValue": 9007199254740993}}]),
        point({"asInt": 9007199254740993}, attributes=[{"key": "a", "value": {"intValue": "9007199254740993"}}]),
    )
    assert post(server, "metrics", body, JSON).status_code == 200
    exact = "9007199254740993"
    stored = httpx2.post(
        f"{server.url}/api/v1/query",
        json={"sql": "SELECT value_int::VARCHAR, json_extract_string(attrs_json, '$.a') FROM events"},
    )
    assert stored.json()["rows"] == [[exact, exact]] * 2


def test_non_finite_values_come_quoted_and_unquoted(server: RunningServer) -> None:
    body = metrics(*(point({"asDouble": value}) for value in ("NaN", "Infinity", "-Infinity", float("nan"))))
    assert post(server, "metrics", body, JSON).status_code == 200
    assert [value for (value,) in rows(server, "value_double")] == ["NaN", "Infinity", "-Infinity", "NaN"]


def test_the_url_names_the_cluster_of_those_who_do_not(server: RunningServer) -> None:
    named = {"resource": {"attributes": [{"key": "ingero.cluster.id", "value": {"stringValue": "own"}}]}}
    assert post(server, "metrics", metrics(point({"asInt": 1})), JSON, "?cluster_id=url").status_code == 200
    assert post(server, "metrics", metrics(point({"asInt": 2}), resource=named), JSON, "?cluster_id=url").is_success
    assert rows(server, "cluster_id") == [["url"], ["own"]]


def test_ids_are_hex_in_json_and_odd_ones_cost_nobody_their_row(server: RunningServer) -> None:
    def span(name: str, trace_id: str) -> dict[str, Any]:
        times = {"startTimeUnixNano": str(NOW_NS), "endTimeUnixNano": str(NOW_NS + 5)}
        return {"name": name, "traceId": trace_id, "spanId": "00ff00ff00ff00ff", **times}

    spans = [span("good", "ab" * 16), span("long", "cd" * 32), span("text", "not hex"), span("none", "")]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    assert post(server, "traces", body, JSON).json() == {}
    stored = rows(server, "metric_name, trace_id, span_id, json_extract_string(attrs_json, '$.\"otlp.trace_id_raw\"')")
    assert stored == [
        ["good", "ab" * 16, "00ff00ff00ff00ff", None],
        ["long", None, "00ff00ff00ff00ff", "cd" * 32],
        ["text", None, "00ff00ff00ff00ff", b"not hex".hex()],
        ["none", None, "00ff00ff00ff00ff", None],
    ]


def test_one_unusable_record_is_counted_and_the_others_are_stored_once(server: RunningServer) -> None:
    body = metrics(point({"asInt": 1}), point({"asInt": "many"}), point({"asInt": 3}))
    for _ in range(2):
        answer = post(server, "metrics", body, JSON)
        assert answer.status_code == 200
        assert answer.json()["partialSuccess"]["rejectedDataPoints"] == "1"
        assert "many" in answer.json()["partialSuccess"]["errorMessage"]
    assert rows(server, "value_int") == [[1], [3]]


def test_a_damaged_attribute_costs_only_its_span(server: RunningServer) -> None:
    request = ExportTraceServiceRequest.FromString(
        encode_spans(NODE, [Span(name, NOW_NS, NOW_NS, {"k": "value"}) for name in ("one", "two")])
    )
    # The value of "k" becomes a field of another wire type: still a message on the outside.
    body = request.SerializeToString().replace(b"\n\x01k\x12\x07\n\x05value", b"\n\x01k\x12\x07\n\x7fvalue", 1)
    answer = post(server, "traces", body, PROTOBUF)
    assert answer.status_code == 200
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == 1 and "KeyValue" in partial.error_message
    assert rows(server, "metric_name") == [["two"]]


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        (b"\xff\xff\xff\xff", PROTOBUF, 400, "not an OTLP"),
        (b"{not json", JSON, 400, "not JSON"),
        (b"[]", JSON, 400, "not a JSON object"),
        (b'{"resourceMetrics": 5}', JSON, 400, "not an OTLP"),
        (SAMPLE, {"Content-Type": "text/plain"}, 415, "application/x-protobuf"),
        (SAMPLE, PROTOBUF | {"Content-Encoding": "zstd"}, 415, "send gzip or none"),
        (SAMPLE, PROTOBUF | {"Content-Encoding": "gzip"}, 400, "not gzip"),
        (gzip.compress(SAMPLE)[:-6], PROTOBUF | {"Content-Encoding": "gzip"}, 400, "ends early"),
        (gzip.compress(gzip.compress(SAMPLE)), PROTOBUF | {"Content-Encoding": "gzip"}, 400, "not an OTLP"),
        (bytes((1 << 20) + 1), PROTOBUF, 413, "--max-message-mib"),
        (gzip.compress(bytes(64 << 20)), PROTOBUF | {"Content-Encoding": "gzip"}, 413, "--max-message-mib"),
    ],
)
def test_what_is_refused_is_refused_for_good_and_not_stored(
    server: RunningServer, body: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    answer = post(server, "metrics", body, headers)
    assert answer.status_code == status
    is_json = headers["Content-Type"] == "application/json"
    text = answer.json()["message"] if is_json else Status.FromString(answer.content).message
    assert words in text
    assert rows(server, "metric_name") == []


def test_gzip_is_taken_in_both_encodings(server: RunningServer) -> None:
    for body, headers in ((SAMPLE, PROTOBUF), (metrics(point({"asInt": 1})), JSON)):
        assert post(server, "metrics", gzip.compress(body), headers | {"Content-Encoding": "gzip"}).status_code == 200
    assert len(rows(server, "metric_name")) == 2


def test_a_token_is_wanted_before_anything_is_read(run_server: RunServer, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret")
    with run_server(auth_token_file=str(token_file)) as server:
        assert post(server, "metrics", SAMPLE, PROTOBUF).status_code == 401
        assert post(server, "metrics", SAMPLE, PROTOBUF | {"Authorization": "Bearer s3cret"}).status_code == 200
