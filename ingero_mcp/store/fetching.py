"""What a running query returns: rows of an answer, or an Arrow table, never more than may be held."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from ingero_mcp.errors import QueryError
from ingero_mcp.events import Rows
from ingero_mcp.limits import MIB
from ingero_mcp.store.sizes import FIXED_BYTES, is_nested, row_sizes

_FIRST_CHUNK: Final = 16
_LARGEST_CHUNK: Final = 1000
_BATCH_ROWS: Final = 16_384  # of an Arrow table; measured: fewer cost time, more gain none
_ANSWER: Final = "temp.main.answer"
# What makes one value of many rows. Without it a value is no larger than what was stored.
_GATHERING: Final = re.compile(
    r"\b(string_agg|group_concat|listagg|list|array_agg|json_group_\w+|histogram|map\w*)\s*\(", re.IGNORECASE
)
_LONG: Final = {"VARCHAR": "strlen", "JSON": "strlen", "BLOB": "octet_length"}
_TOO_LARGE: Final = 4  # times the bytes of an answer, in one row: then cutting is no answer


def fetch(cursor: duckdb.DuckDBPyConnection, sql: str, limit: int, most_bytes: int, cell_bytes: int) -> Rows:
    """At most `limit` rows and `most_bytes` of them; a text longer than `cell_bytes` is cut and says so."""
    relation = cursor.sql(sql)
    columns, types = tuple(map(str, relation.columns)), tuple(map(str, relation.types))
    if is_nested(relation.types) or _GATHERING.search(sql):
        return _fetch_measured(cursor, sql, (columns, types), limit, most_bytes)
    cursor.execute(_with_short_cells(sql, types, cell_bytes))
    rows: list[tuple[object, ...]] = []
    size = 0
    chunk_rows = _FIRST_CHUNK
    while chunk := cursor.fetchmany(min(chunk_rows, limit + 1 - len(rows))):
        for row in chunk:
            size += sum(map(_bytes, row))
            if len(rows) == limit:
                return Rows(columns, types, rows, True, "rows")
            if size > most_bytes:
                return Rows(columns, types, rows, True, "bytes")
            rows.append(row)
        # Only as many at a time as will fit, going by those seen: one row may be very large.
        left = most_bytes - size
        chunk_rows = max(1, min(_LARGEST_CHUNK, left * len(rows) // max(size, 1)))
    return Rows(columns, types, rows)


def collect(cursor: duckdb.DuckDBPyConnection, sql: str, most_bytes: int) -> pa.Table:
    """All rows; QueryError if they would need more than `most_bytes`."""
    batches: list[pa.RecordBatch] = []
    size = 0
    with _arrow(cursor, sql, _BATCH_ROWS) as reader:
        for batch in reader:
            size += batch.nbytes
            if size > most_bytes:
                raise QueryError(
                    f"the result needs more than {most_bytes / MIB:.0f} MiB of memory; narrow the time window, "
                    "select fewer columns, or aggregate"
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


@contextmanager
def _arrow(cursor: duckdb.DuckDBPyConnection, sql: str, rows: int) -> Iterator[pa.RecordBatchReader]:
    try:
        with cursor.sql(sql).to_arrow_reader(rows) as reader:
            yield reader
    except (OSError, pa.ArrowException) as error:
        # What the engine says while Arrow reads from it arrives as an error of Arrow, with the engine's words.
        raise duckdb.Error(str(error)) from error


def _fetch_measured(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    described: tuple[tuple[str, ...], tuple[str, ...]],
    limit: int,
    most_bytes: int,
) -> Rows:
    """Keep the result in the engine and look how large it is, before any of it becomes Python values."""
    cursor.execute(f"CREATE TEMP TABLE {_ANSWER} AS SELECT * FROM ({sql}) LIMIT {limit + 1}")
    sizes = _measure(cursor)
    if len(sizes) and sizes[0] > most_bytes * _TOO_LARGE:
        raise QueryError(
            f"a row of the result needs more than {sizes[0] / MIB:.1f} MiB of memory; aggregate or filter first, or "
            "unnest the list and LIMIT the rows"
        )
    fit = int(np.searchsorted(np.cumsum(sizes[:limit]), most_bytes, side="right"))
    rows = cursor.execute(f"SELECT * FROM {_ANSWER} LIMIT {fit}").fetchall()
    if fit < min(limit, len(sizes)):
        return Rows(*described, rows, True, "bytes")
    return Rows(*described, rows, len(sizes) > limit, "rows" if len(sizes) > limit else "")


def _with_short_cells(sql: str, types: tuple[str, ...], cell_bytes: int) -> str:
    """The query with its long texts cut inside the engine, before they become Python values."""
    if not any(kind in _LONG for kind in types):
        return sql
    names = [f"c{place}" for place in range(len(types))]
    shown = []
    for name, kind in zip(names, types, strict=True):
        if kind in _LONG:
            size = f"{_LONG[kind]}({name})"
            short = f"left({name}, {cell_bytes // 4}) || '[cut: ' || {size} || ' bytes]'"  # of at most 4 bytes each
            if kind == "BLOB":
                short = (
                    f"error('a value of ' || {size} || ' bytes is too large for a cell; ask for octet_length of it')"
                )
            name = f"CASE WHEN {size} > {cell_bytes} THEN {short} ELSE {name} END"
        shown.append(name)
    return f"SELECT {', '.join(shown)} FROM ({sql}) AS answer({', '.join(names)})"


def _measure(cursor: duckdb.DuckDBPyConnection) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    with _arrow(cursor, f"SELECT * FROM {_ANSWER}", _FIRST_CHUNK) as reader:
        return np.concatenate([np.zeros(0, dtype=np.int64), *map(row_sizes, reader)])


def _bytes(cell: object) -> int:
    """About how much the cell adds to an answer."""
    return len(cell) if isinstance(cell, str | bytes) else FIXED_BYTES
