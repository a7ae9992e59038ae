"""What the tests of the tools share: rows to put into a store, and questions asked through a real client."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from mcp import Client
from mcp.types import CallToolResult, Implementation, TextContent

from ingero_mcp.batches import batch
from ingero_mcp.mcp_server import build
from ingero_mcp.semconv import HEALTH_SCORE
from ingero_mcp.store import Store
from ingero_mcp.tools.answer import MAX_BYTES

NOON = 1_796_040_000_000_000_000  # 2026-11-30T12:00:00Z
SECOND = 1_000_000_000
HISTORY = "fleet.cluster.event_history"
OUTLIERS = "fleet.cluster.find_outlier_nodes"
ANALYSIS = "fleet.cluster.run_analysis"
COST = "fleet.cluster.get_cost"
FLEET = "query_fleet"
EXPLAIN = "fleet.cluster.explain_stall"


def put(store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store events; what a row does not say is a health sample of node n1 in cluster c1, one per second from noon."""
    full = [
        {
            "cluster_id": "c1",
            "node_id": "n1",
            "event_seq": place,
            "timestamp_ns": NOON + place * SECOND,
            "metric_name": HEALTH_SCORE,
            "source": "health",
            **row,
        }
        for place, row in enumerate(rows)
    ]
    names = dict.fromkeys(name for row in full for name in row)
    store.append(batch({name: [row.get(name) for row in full] for name in names}, len(full))).result(timeout=10)


def samples(values: Mapping[str, Sequence[float | None]], **shared: Any) -> list[dict[str, Any]]:
    """One row per value of each node."""
    return [{"node_id": node, "value_double": value, **shared} for node, own in values.items() for value in own]


async def ask(
    store: Any,
    tool: str,
    arguments: dict[str, Any] | None = None,
    *,
    era: str = "auto",
    client: str = "a-client",
    **how: Any,
) -> CallToolResult:
    """Call a tool of a server over the store, and check what holds for every answer."""
    async with Client(build(store, **how), mode=era, client_info=Implementation(name=client, version="1")) as asking:
        result = await asking.call_tool(tool, arguments)
    wire = result.model_dump_json(by_alias=True, exclude_none=True)
    json.loads(wire, parse_constant=_not_json)
    assert len(wire.encode()) <= MAX_BYTES
    if result.is_error:
        assert result.structured_content is None
    else:
        begin = "verdict: " if tool == EXPLAIN else f"{result.structured_content['row_count']} row"
        assert text_of(result).startswith(begin)
    return result


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def table_of(result: CallToolResult) -> list[dict[str, Any]]:
    """The rows by column name."""
    assert not result.is_error, text_of(result)
    told = result.structured_content
    return [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]]


def lines_of(result: CallToolResult) -> list[list[str]]:
    """The cells of the text channel, header line first."""
    head, _, table = text_of(result).partition("rows (recorded data")
    assert head
    return [line.split("\t") for line in table.split("\n")[1:]]


def next_of(result: CallToolResult) -> tuple[str, dict[str, Any]]:
    """The tool and the arguments of the literal next call, the same in both channels."""
    literal = result.structured_content["next"]
    assert f"\nnext: {literal}\n" in text_of(result)
    tool, _, arguments = literal.partition(" ")
    return tool, json.loads(arguments)


def _not_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")
