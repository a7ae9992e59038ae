"""Parquet: a file of row groups whose bytes come as they are made."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingero_mcp.errors import QueryError
from ingero_mcp.export.parquet import parquet_bytes

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
TABLE = pa.table({"a": [1, None, 2**63 - 1], "b": ["", None, "x"]}, schema=SCHEMA)


def test_each_table_is_a_row_group_and_is_handed_on_at_once() -> None:
    pieces = parquet_bytes(SCHEMA, iter([TABLE, TABLE.slice(1)]))
    first = next(pieces)
    assert first.startswith(b"PAR1") and len(first) > 50
    read = pq.ParquetFile(io.BytesIO(first + b"".join(pieces)))
    assert [read.metadata.row_group(number).num_rows for number in range(read.metadata.num_row_groups)] == [3, 2]
    assert read.read().equals(pa.concat_tables([TABLE, TABLE.slice(1)]))


def test_no_rows_are_a_file_with_columns() -> None:
    read = pq.read_table(io.BytesIO(b"".join(parquet_bytes(SCHEMA, []))))
    assert (read.num_rows, read.schema) == (0, SCHEMA)


def test_a_type_that_it_does_not_have_is_said() -> None:
    odd = pa.table({"a": pa.array([None], pa.month_day_nano_interval())})
    with pytest.raises(QueryError, match="cast it"):
        list(parquet_bytes(odd.schema, [odd]))
