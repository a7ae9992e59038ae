"""The four published queries: through an MCP session, and in DuckDB without anything in between."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import duckdb
from mcp import Client

from bench.figure import Figure, measure, seconds
from ingero_mcp import mcp_server
from ingero_mcp.clock import now_ns
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.store import Store, open_store
from ingero_mcp.synth.stress import StressPlan
from tests.test_fan_in import PUBLISHED_QUERIES

_NODES = 8
_EVENTS = 25_000
_REPETITIONS = 15


def figures() -> Iterator[Figure]:
    """Milliseconds per query over 200,000 events, and the ratio of the two ways."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.duckdb"
        with open_store(path) as store:
            _fill(store)
            asked = {name: anyio.run(_ask, store, name, sql) for name, sql in PUBLISHED_QUERIES.items()}
        with duckdb.connect(str(path), read_only=True, config={"threads": 2}) as bare:
            for name, sql in PUBLISHED_QUERIES.items():
                yield asked[name]
                alone = measure(
                    f"query '{name}' in DuckDB alone",
                    "ms",
                    lambda sql=sql: seconds(lambda: bare.execute(sql).fetchall()) * 1e3,  # type: ignore[misc]
                    _REPETITIONS,
                )
                yield alone
                ratio = asked[name].value / alone.value
                yield Figure(f"query '{name}': MCP to DuckDB alone", ratio, "times", ratio, ratio)


def _fill(store: Store) -> None:
    decoder = Decoder()
    for node in range(_NODES):
        plan = StressPlan("bench", f"node-{node}", _EVENTS, now_ns() - _EVENTS * 1_000_000)
        body = encode_samples(plan.resource(), plan.samples())
        store.append(decoder.decode("metrics", body, Arrival(now_ns())).batch).result()


async def _ask(store: Store, name: str, sql: str) -> Figure:
    elapsed_ms: list[float] = []
    async with Client(mcp_server.build(store)) as client:
        for _ in range(_REPETITIONS + 1):
            began_ns = now_ns()
            result = await client.call_tool("fleet.cluster.run_analysis", {"sql": sql})
            assert not result.is_error, result.content
            elapsed_ms.append((now_ns() - began_ns) / 1e6)
    # The first call pays for imports and for the guard's verdict on a text it has not seen.
    timed = iter(elapsed_ms[1:])
    return measure(f"query '{name}' through MCP", "ms", lambda: next(timed), _REPETITIONS)
