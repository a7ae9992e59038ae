"""Clocks of nodes in the database: what was found out about them, newest reading of each method and moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

import duckdb
import pyarrow as pa

from ingero_mcp.clocks import NodeClock
from ingero_mcp.store.schema import NODE_CLOCKS
from ingero_mcp.views.clocks import BUCKET_NS, CLOCK_SPANS

_FIELDS: Final[list[tuple[str, pa.DataType]]] = [
    ("cluster_id", pa.string()),
    ("node_id", pa.string()),
    ("rank", pa.int32()),
    ("at_ns", pa.int64()),
    ("offset_ns", pa.int64()),
    ("bound_ns", pa.int64()),
    ("method", pa.string()),
    ("reference", pa.string()),
]
SCHEMA: Final = pa.schema(_FIELDS)
"""The fields of a NodeClock, in order."""

_EARLIEST_NS, _LATEST_NS = -(2**63), 2**63 - 1
_LONG_NS: Final = 86_400_000_000_000  # a day is 144 buckets; what holds longer is rare, and has none
_SAME: Final = " AND ".join(
    f"old.{name} = clocks.{name}" for name in ("cluster_id", "node_id", "at_ns", "method")
) + " AND old.rank IS NOT DISTINCT FROM clocks.rank"  # fmt: skip
_OF_CLOCK: Final = (
    "old.cluster_id = {0}.cluster_id AND old.node_id = {0}.node_id AND coalesce(old.rank, -1) = coalesce({0}.rank, -1)"
)
# From the newest reading before the new ones on, whose span now ends earlier.
_CHANGED: Final = f"""
    SELECT clocks.cluster_id, clocks.node_id, clocks.rank,
           coalesce(
               nullif(max(old.at_ns) FILTER (old.at_ns < clocks.first_ns), min(old.at_ns)), {_EARLIEST_NS}
           ) AS since_ns
    FROM (SELECT cluster_id, node_id, rank, min(at_ns) AS first_ns FROM clocks GROUP BY ALL) AS clocks
    LEFT JOIN {NODE_CLOCKS} AS old ON {_OF_CLOCK.format("clocks")}
    GROUP BY ALL
    """
_SPANS: Final = f"""
    WITH readings AS (
        SELECT old.*, changed.since_ns = {_EARLIEST_NS} AND row_number() OVER in_time = 1 AS is_first,
               lead(at_ns) OVER in_time AS next_ns
        FROM {NODE_CLOCKS} AS old
        JOIN changed ON {_OF_CLOCK.format("changed")} AND old.at_ns >= changed.since_ns
        WINDOW in_time AS (
            PARTITION BY old.cluster_id, old.node_id, old.rank ORDER BY at_ns, bound_ns DESC NULLS FIRST
        )
    ),
    spans AS (
        SELECT cluster_id, node_id, coalesce(rank, -1) AS rank, at_ns, offset_ns, bound_ns,
               CASE WHEN is_first THEN {_EARLIEST_NS} ELSE at_ns END AS from_ns,
               coalesce(next_ns, {_LATEST_NS}) AS to_ns,
               coalesce(NOT is_first AND next_ns - at_ns < {_LONG_NS}, false) AS is_short
        FROM readings
    )
    SELECT cluster_id, node_id, rank, at_ns, NULL AS bucket, from_ns, to_ns, offset_ns, bound_ns
    FROM spans WHERE NOT is_short
    UNION ALL
    SELECT cluster_id, node_id, rank, at_ns, unnest(range(from_ns // {BUCKET_NS}, to_ns // {BUCKET_NS} + 1)),
           from_ns, to_ns, offset_ns, bound_ns
    FROM spans WHERE is_short
    """


def batch_of(clocks: Sequence[NodeClock]) -> pa.RecordBatch:
    """Clocks as rows; of those with the same place, time and method the last one counts."""
    kept = {(clock.cluster_id, clock.node_id, clock.rank, clock.at_ns, clock.method): clock for clock in clocks}
    columns = {field.name: [getattr(clock, field.name) for clock in kept.values()] for field in fields(NodeClock)}
    return pa.RecordBatch.from_pydict(columns, SCHEMA)


def insert(cursor: duckdb.DuckDBPyConnection, clocks: pa.RecordBatch) -> None:
    """Store them, in place of those with the same place, time and method, and renew the spans that this changes."""
    cursor.register("clocks", clocks)
    cursor.execute(f"DELETE FROM {NODE_CLOCKS} AS old USING clocks WHERE {_SAME}")
    cursor.register("changed", cursor.sql(_CHANGED).to_arrow_table())
    cursor.execute(f"INSERT INTO {NODE_CLOCKS} SELECT * FROM clocks")
    cursor.execute(
        f"DELETE FROM {CLOCK_SPANS} AS old USING changed "
        f"WHERE {_OF_CLOCK.format('changed')} AND old.at_ns >= changed.since_ns"
    )
    cursor.execute(f"INSERT INTO {CLOCK_SPANS} {_SPANS}")
    cursor.unregister("changed")
    cursor.unregister("clocks")
