"""What happens inside one transaction of the writer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp.clock import now_ns
from ingero_mcp.store.schema import BATCHES

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """What identifies a batch. A `lasting` key is never forgotten, others after the retry memory of the store."""

    value: bytes
    lasting: bool = False


def claim(cursor: duckdb.DuckDBPyConnection, keys: Sequence[Key | None]) -> list[bool]:
    """Record the keys of batches; says of each batch whether it was not stored before."""
    now = now_ns()
    first: dict[bytes, int] = {}
    received: list[int | None] = []
    for place, key in enumerate(keys):
        if key is not None and key.value not in first:
            first[key.value] = place
            received.append(None if key.lasting else now)
    if not first:
        return [True] * len(keys)
    offered = pa.table({"key": pa.array(first, type=pa.binary()), "received_ns": pa.array(received, type=pa.int64())})
    cursor.register("keys", offered)
    claimed = cursor.execute(
        f"INSERT INTO {BATCHES} SELECT key, received_ns FROM keys ON CONFLICT DO NOTHING RETURNING key"
    ).fetchall()
    cursor.unregister("keys")
    fresh = {first[key] for (key,) in claimed}
    return [key is None or place in fresh for place, key in enumerate(keys)]


def insert(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table, next_seq: int) -> int:
    """Insert events; those without a number are numbered from `next_seq`. Returns the next free number."""
    numbered, next_seq = _number(rows, next_seq)
    cursor.register("incoming", numbered)
    cursor.execute(f"INSERT INTO {table} SELECT * FROM incoming")
    cursor.unregister("incoming")
    return next_seq


def _number(rows: pa.Table, next_seq: int) -> tuple[pa.Table, int]:
    """Give the events that came without a sequence number one of the server's own."""
    place = rows.schema.get_field_index("event_seq")
    column = rows.column(place)
    if column.null_count == 0:
        return rows, next_seq
    numbers = pa.array(range(next_seq, next_seq + rows.num_rows), type=pa.int64())
    numbered = pc.if_else(pc.is_null(column), numbers, column.combine_chunks())
    return rows.set_column(place, rows.schema.field(place), numbered), next_seq + rows.num_rows


def roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    """Undo the transaction, as far as there still is one."""
    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error as error:
        # The transaction is already gone, with the instance; the first error is the one to report.
        _log.debug("rollback: %s", error)
