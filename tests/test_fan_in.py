"""The fan-in proof: many producers over real gRPC, and every event is there, once, whoever asks."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from ingero_mcp.events import Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.sender import Sender
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from ingero_mcp.synth.stress import LOW, Planted, StressPlan
from tests.conftest import RunServer

START_NS = 1_796_000_000_000_000_000
PUBLISHED_QUERIES = {
    "per node": "SELECT cluster_id, node_id, COUNT(*) AS events FROM events "
    "GROUP BY cluster_id, node_id ORDER BY node_id",
    "chains": "SELECT COUNT(DISTINCT json_extract_string(attrs_json, '$.causal_chain_id')) AS chains FROM events "
    "WHERE attrs_json LIKE '%causal_chain_id%'",
    "stragglers": "SELECT node_id, COUNT(*) AS straggler_events FROM events WHERE value_double < 0.40 GROUP BY node_id",
    "health": "SELECT node_id, quantile_cont(value_double, 0.5) AS median_health, "
    "quantile_cont(value_double, 0.95) AS p95_health FROM events GROUP BY node_id",
}


def plans(producers: int, events: int) -> list[StressPlan]:
    """Producers in two clusters, one node each."""
    return [
        StressPlan(f"cluster-{number % 2}", f"node-{number}", events, START_NS, seed=number)
        for number in range(producers)
    ]


def send(plan: StressPlan, address: str, batch: int) -> list[bytes]:
    """Send the plan's samples in batches; returns the bodies."""
    samples = list(plan.samples())
    bodies = [
        encode_samples(plan.resource(), samples[place : place + batch]) for place in range(0, len(samples), batch)
    ]
    with Sender(address) as sender:
        for body in bodies:
            sender.send("metrics", body)
    return bodies


def send_all(all_plans: Sequence[StressPlan], address: str, batch: int) -> list[list[bytes]]:
    with ThreadPoolExecutor(len(all_plans)) as pool:
        return list(pool.map(lambda plan: send(plan, address, batch), all_plans))


def planted(plan: StressPlan) -> Planted:
    truth = Planted()
    for sample in plan.samples():
        truth = truth.plus(sample)
    return truth


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_store(path, read_only=True) as store:
        return store.query(check(sql), limit=10_000).rows


async def ask(url: str, sql: str) -> Any:
    async with Client(f"{url}/mcp") as client:
        result = await client.call_tool("fleet.cluster.run_analysis", {"sql": sql, "limit": 1000})
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content["rows"]


@pytest.mark.anyio
async def test_eight_producers_all_events_land_with_every_attribute(run_server: RunServer, tmp_path: Path) -> None:
    all_plans = plans(producers=8, events=250)
    truth = {plan.node_id: planted(plan) for plan in all_plans}
    with run_server() as server:
        send_all(all_plans, server.otlp_addr, batch=50)
        per_node = await ask(server.url, PUBLISHED_QUERIES["per node"])
        chains = await ask(server.url, PUBLISHED_QUERIES["chains"])
        low = await ask(server.url, PUBLISHED_QUERIES["stragglers"])
        health = await ask(server.url, PUBLISHED_QUERIES["health"])
    assert per_node == [[plan.cluster_id, plan.node_id, 250] for plan in all_plans]
    assert chains == [[sum(node.chains for node in truth.values())]] == [[80]]
    assert sorted(low) == sorted([node, count.low] for node, count in truth.items() if count.low)
    assert len(health) == 8

    stored = query(tmp_path / "events.duckdb", "SELECT node_id, event_seq, value_double, attrs_json FROM events")
    expected = {
        (plan.node_id, number): sample for plan in all_plans for number, sample in enumerate(plan.samples(), start=1)
    }
    assert len(stored) == len(expected) == 2000
    for node_id, seq, value, attrs_json in stored:
        assert_is(expected[node_id, seq], value, json.loads(attrs_json))
    keep(tmp_path / "events.duckdb")


def keep(database: Path) -> None:
    """Leave the proof where INGERO_KEEP_DEMO_DB says."""
    if folder := os.environ.get("INGERO_KEEP_DEMO_DB"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(database, Path(folder) / "fan-in.duckdb")


def assert_is(sample: Sample, value: float, attributes: dict[str, Any]) -> None:
    assert value == sample.value
    sent = {key: held for key, held in sample.attributes.items() if key != "ingero.event.seq"}
    assert {key: attributes.get(key) for key in sent} == sent


@pytest.mark.anyio
async def test_a_burst_loses_nothing_and_doubles_nothing(run_server: RunServer) -> None:
    all_plans = plans(producers=8, events=625)
    with run_server() as server:
        send_all(all_plans, server.otlp_addr, batch=25)
        counts = await ask(server.url, "SELECT count(*), count(DISTINCT id) FROM events")
        low = await ask(server.url, f"SELECT count(*) FROM events WHERE value_double < {LOW}")
    assert counts == [[5000, 5000]]
    assert low == [[sum(planted(plan).low for plan in all_plans)]]


@pytest.mark.anyio
async def test_the_same_batches_sent_again_are_not_stored_again(run_server: RunServer) -> None:
    all_plans = plans(producers=2, events=200)
    with run_server() as server:
        bodies = send_all(all_plans, server.otlp_addr, batch=50)
        with Sender(server.otlp_addr) as sender:
            for body in [body for producer in bodies for body in producer]:
                sender.send("metrics", body)
        assert await ask(server.url, "SELECT count(*) FROM events") == [[400]]
    with run_server() as restarted:
        with Sender(restarted.otlp_addr) as sender:
            sender.send("metrics", bodies[0][0])
        assert await ask(restarted.url, "SELECT count(*) FROM events") == [[400]]
