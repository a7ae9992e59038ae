"""What an Ingero agent pushes: JSON with integers as numbers, the cluster on the URL, and its known faults."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2

from tests.conftest import RunServer

SINCE_BOOT_NS = 86_400_000_000_123


def attribute(key: str, value: str | int) -> dict[str, Any]:
    # The agent writes 64-bit integers as JSON numbers, where the specification has strings.
    return {"key": key, "value": {"intValue": value} if isinstance(value, int) else {"stringValue": value}}


def gauge(name: str, value: float | int, time_ns: int, *attributes: dict[str, Any]) -> dict[str, Any]:
    number = {"asInt": value} if isinstance(value, int) else {"asDouble": value}
    return {"name": name, "gauge": {"dataPoints": [{"timeUnixNano": str(time_ns), "attributes": attributes, **number}]}}


def test_an_agents_metrics_land_in_their_columns(run_server: RunServer) -> None:
    now_ns = time.time_ns()
    collective = [
        attribute("nccl.op_type", "ncclAllReduce"),
        attribute("nccl.comm_id_hash", "00112233445566ff"),
        attribute("nccl.rank", 5),
        attribute("nccl.nranks", 8),
        attribute("nccl.datatype", 7),
    ]
    health = [attribute("ingero.node.state", "active"), attribute("ingero.cgroup_path_hash", "0123456789abcdef")]
    throttled = {"key": "gpu.uuid", "value": {"stringValue": "GPU-1"}}
    resource = [
        attribute("ingero.node.id", "gpu-1"),
        attribute("ingero.world_size", 8),
        attribute("ingero.node.rank", 2),
    ]
    metrics = [
        gauge("nccl.collective.duration_ms", 0.012, SINCE_BOOT_NS, *collective),
        gauge("ingero.node.health_score", 0.91, now_ns, *health),
        gauge("gpu.throttle.thermal_active", 1, now_ns, throttled),
        gauge("gpu.memory.process.allocated_bytes", 2**53 + 1, now_ns, throttled, attribute("process.pid", 41)),
    ]
    scope = {"scope": {"name": "ingero.health", "version": "0.10.0"}, "metrics": metrics}
    body = {"resourceMetrics": [{"resource": {"attributes": resource}, "scopeMetrics": [scope]}]}
    sql = (
        "SELECT source, metric_name, cluster_id, node_id, rank, nranks, world_size, comm_id, gpu_uuid, pid, "
        "value_double, value_int::VARCHAR AS value_int, timestamp_ns::VARCHAR AS at_ns, attrs_json "
        "FROM events ORDER BY event_seq"
    )
    with run_server() as server:
        url = f"{server.otlp_http_url}/v1/metrics?cluster_id=prod"
        answer = httpx2.post(url, json=body)
        assert (answer.status_code, answer.json()) == (200, {})
        stored = httpx2.post(f"{server.url}/api/v1/query", json={"sql": sql}).json()
        counted = httpx2.get(f"{server.url}/metrics").text
    rows = [dict(zip(stored["columns"], row, strict=True)) for row in stored["rows"]]
    nccl, score, throttle, memory = rows
    assert {row["cluster_id"] for row in rows} == {"prod"} and {row["node_id"] for row in rows} == {"gpu-1"}
    # A communicator as large as the job gives the global rank; else the rank of the node stands in.
    assert (nccl["source"], nccl["rank"], nccl["nranks"], nccl["comm_id"]) == ("nccl", 5, 8, "00112233445566ff")
    assert (score["source"], score["rank"], score["value_double"]) == ("health", 2, 0.91)
    assert (throttle["source"], throttle["gpu_uuid"], throttle["value_int"]) == ("gpu", "GPU-1", "1")
    assert (memory["pid"], memory["value_int"]) == (41, str(2**53 + 1))
    # Time since boot is no time: the row has the time of its arrival, and the raw value is kept and counted.
    repaired = nccl["at_ns"]
    assert abs(int(repaired) - now_ns) < 60 * 10**9
    assert json.loads(nccl["attrs_json"])["otlp.time_raw_ns"] == SINCE_BOOT_NS
    assert json.loads(nccl["attrs_json"])["nccl.op_type"] == "ncclAllReduce"
    assert 'ingero_receiver_repaired_times_total{signal="metrics"} 1.0' in counted
