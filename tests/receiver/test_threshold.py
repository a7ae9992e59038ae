"""The threshold as an Ingero agent gets it: with the answer to its push, or by asking; over HTTP and gRPC."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from ingero_mcp.events import Resource, Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.semconv import HEALTH_SCORE
from tests.conftest import RunServer
from tests.receiver.test_ingero_agent import attribute, gauge

EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
SCORES = (0.90, 0.91, 0.92, 0.93, 0.94)
EXACT = 0.92 - 2 * 0.01 * 1.4826
HEADERS = ("X-Ingero-Threshold", "X-Ingero-Quorum-Met")


def pushed(scores: tuple[float, ...], *, hash_: str = "", state: str = "active") -> dict[str, Any]:
    """The JSON of agents, one resource each, as a collector passes on several pushes at once."""
    now_ns = time.time_ns()
    told = [attribute("ingero.node.state", state), attribute("ingero.workload_type", "training")]
    metrics = [
        [
            gauge("ingero.node.health_score", score, now_ns, *told, attribute("ingero.cgroup_path_hash", hash_)),
            gauge("ingero.node.degradation_warning", 0, now_ns, *told),
        ]
        for score in scores
    ]
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": [attribute("ingero.node.id", f"gpu-{place}{hash_}")]},
                "scopeMetrics": [{"scope": {"name": "ingero.health", "version": "0.10.0"}, "metrics": own}],
            }
            for place, own in enumerate(metrics)
        ]
    }


def read(answer: httpx2.Response) -> tuple[float, str] | None:
    """What an agent reads; both headers or neither."""
    value, met = (answer.headers.get(name) for name in HEADERS)
    assert (value is None) == (met is None)
    return None if value is None or met is None else (float(value), met)


def test_the_answer_to_a_push_carries_the_threshold(run_server: RunServer) -> None:
    with run_server() as server:
        url = f"{server.otlp_http_url}/v1/metrics?cluster_id=prod"
        told = read(httpx2.post(url, json=pushed(SCORES)))
        assert told == (pytest.approx(EXACT, abs=1e-5), "true")
        other = httpx2.post(f"{server.otlp_http_url}/v1/metrics?cluster_id=empty", json=pushed(SCORES[:4]))
        assert read(other) == (0.0, "false")
        for address in (server.otlp_http_url, server.url):
            asked = httpx2.get(f"{address}/api/v1/threshold?cluster_id=prod")
            assert asked.json() == {"threshold": pytest.approx(EXACT), "quorum_met": True}
            none = httpx2.get(f"{address}/api/v1/threshold?cluster_id=nobody").json()
            assert none == {"threshold": 0.0, "quorum_met": False}
            wrong = httpx2.get(f"{address}/api/v1/threshold")
            assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_request")
        shown = httpx2.get(f"{server.url}/metrics").text
        assert 'ingero_fleet_active_nodes{cgroup_path_hash="",cluster_id="prod"} 5.0' in shown


def test_idle_nodes_are_no_quorum(run_server: RunServer) -> None:
    with run_server() as server:
        url = f"{server.otlp_http_url}/v1/metrics?cluster_id=prod"
        assert read(httpx2.post(url, json=pushed(SCORES, state="idle"))) == (0.0, "false")


def test_who_asks_for_no_threshold_gets_no_header(run_server: RunServer) -> None:
    with run_server() as server:
        samples = pushed(SCORES)["resourceMetrics"][:1]
        del samples[0]["scopeMetrics"][0]["metrics"][0]
        plain = httpx2.post(f"{server.otlp_http_url}/v1/metrics", json={"resourceMetrics": samples})
        assert (plain.status_code, read(plain)) == (200, None)
        traces = httpx2.post(f"{server.otlp_http_url}/v1/traces?cluster_id=prod", json={"resourceSpans": []})
        assert (traces.status_code, read(traces)) == (200, None)


def test_a_push_that_is_sent_again_is_answered_alike(run_server: RunServer) -> None:
    with run_server() as server:
        url, body = f"{server.otlp_http_url}/v1/metrics?cluster_id=prod", pushed(SCORES)
        assert read(httpx2.post(url, json=body)) == read(httpx2.post(url, json=body))


def test_the_token_is_asked_for(run_server: RunServer, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret")
    with run_server(auth_token_file=str(token_file)) as server:
        for address in (server.otlp_http_url, server.url):
            url = f"{address}/api/v1/threshold?cluster_id=prod"
            assert httpx2.get(url).status_code == 401
            assert httpx2.get(url, headers={"Authorization": "Bearer s3cret"}).status_code == 200


def test_a_grpc_client_finds_it_in_the_initial_metadata(run_server: RunServer) -> None:
    now_ns = time.time_ns()

    def body(node: int, name: str = HEALTH_SCORE) -> bytes:
        resource = Resource({"ingero.cluster.id": "prod", "ingero.node.id": f"gpu-{node}"})
        state = {"ingero.node.state": "active"}
        return encode_samples(resource, [Sample(name, now_ns, SCORES[node], state)])

    with run_server(threshold_least_nodes=1) as server, grpc.insecure_channel(server.otlp_addr) as channel:
        export = channel.unary_unary(EXPORT)

        def told(request: bytes) -> dict[str, str | bytes]:
            _, call = export.with_call(request, timeout=30)
            found = {key: value for key, value in call.initial_metadata() if key.startswith("ingero")}
            return found

        assert told(body(2)) == {"ingero-threshold": "0.92", "ingero-quorum-met": "true"}
        assert told(body(3, name="another.metric")) == {}


def test_a_server_that_starts_anew_goes_on_from_its_store(run_server: RunServer) -> None:
    with run_server() as server:
        httpx2.post(f"{server.otlp_http_url}/v1/metrics?cluster_id=prod", json=pushed(SCORES))
    with run_server() as server:
        asked = httpx2.get(f"{server.url}/api/v1/threshold?cluster_id=prod").json()
        assert asked == {"threshold": pytest.approx(EXACT), "quorum_met": True}


def test_the_settings_of_the_threshold_are_taken(run_server: RunServer) -> None:
    with run_server(threshold_k=4.0, threshold_least_nodes=6) as server:
        url = f"{server.otlp_http_url}/v1/metrics?cluster_id=prod"
        assert read(httpx2.post(url, json=pushed(SCORES))) == (0.0, "false")
        # Another interval has not passed, so only what starts anew shows it.
    with run_server(threshold_k=4.0) as server:
        asked = httpx2.get(f"{server.url}/api/v1/threshold?cluster_id=prod").json()
        assert asked["threshold"] == pytest.approx(0.92 - 4 * 0.01 * 1.4826)
