"""Calls as rows of events, and questions about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ingero_mcp.batches import batch
from ingero_mcp.events import STORED
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store

T0 = 1_796_040_000_000_000_000
S = 1_000_000_000
COMM = "00000000000000ff"


def call(rank: int | None, seq: int, enter_ns: int, **columns: Any) -> dict[str, Any]:
    """A call of an all-reduce, `enter_ns` after T0; `attrs` are the attributes without a column."""
    attrs = columns.pop("attrs", {})
    usual = {
        "cluster_id": "c",
        "node_id": "n",
        "job_id": "j",
        "source": "nccl",
        "metric_name": "ncclAllReduce",
        "comm_id": COMM,
        "nranks": 4,
        "timing_source": "host_api",
        "duration_ns": 5,
        "attrs_json": json.dumps(attrs, separators=(",", ":")),
    }
    return usual | {"rank": rank, "coll_seq": seq, "timestamp_ns": T0 + enter_ns} | columns


def rows(events: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """A batch of events from dictionaries; absent columns are NULL."""
    columns = {column.name: [event.get(column.name) for event in events] for column in STORED}
    return batch(columns, len(events))


def put(store: Store, *events: dict[str, Any]) -> None:
    """Store events in one batch."""
    store.append(rows(events)).result(timeout=20)


def ask(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    answer = store.query(check(sql), limit=100_000)
    assert not answer.truncated
    return answer.rows
