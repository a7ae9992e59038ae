"""Answers with large values: measured before they are made, and no different from what they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import QueryError
from ingero_mcp.limits import StoreLimits
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from ingero_mcp.store.fetching import fetch
from ingero_mcp.store.sizes import row_sizes
from tests.store.test_store import samples

MOST = 1 << 20
# One of every type, with values at the edge of what Arrow can carry.
VALUES = (
    "true", "1::TINYINT", "-2::SMALLINT", "3::INTEGER", "9007199254740993::BIGINT", "255::UTINYINT", "65535::USMALLINT",
    "4294967295::UINTEGER", "18446744073709551615::UBIGINT", "170141183460469231731687303715884105727::HUGEINT",
    "340282366920938463463374607431768211455::UHUGEINT", "1.5::FLOAT", "'nan'::DOUBLE", "1.25::DECIMAL(4,2)",
    "12345678901234567890.123456789::DECIMAL(38,9)", "'text ü'", "'\\xFF\\x00'::BLOB", "'101'::BIT",
    "'1b4e28ba-2fa1-11d2-883f-0016d3cca427'::UUID", "DATE '2026-11-30'", "DATE '5000000-01-01'", "'-infinity'::DATE",
    "TIME '24:00:00'", "TIME_NS '01:02:03.123456789'", "TIMETZ '23:59:59.999999+15:59:59'",
    "TIMESTAMP '2026-11-30 01:02:03.000004'", "'infinity'::TIMESTAMP", "TIMESTAMP_S '2026-11-30 01:02:03'",
    "TIMESTAMP_MS '2026-11-30 01:02:03.004'", "TIMESTAMP_NS '2026-11-30 01:02:03.000000005'",
    "TIMESTAMPTZ '2026-11-30 01:02:03+02'", "INTERVAL '290000 years 3 days 5 microseconds'", "'y'::ENUM ('x', 'y')",
    "'{\"a\": 1}'::JSON", "NULL", "union_value(a := 1)",
)  # fmt: skip
SHAPES = (
    "[{0}]", "[{0}, NULL]", "[[], [{0}]]", "{{'a': {0}, 'b': 1}}", "{{'a': NULL, 'b': [{0}]}}", "MAP {{'k': {0}}}",
    "array_value({0}, {0})", "ROW({0}, 1)", "MAP {{[1]: {{'x': {0}}}}}", "[]", "NULL::INTEGER[]",
)  # fmt: skip


@pytest.fixture
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection, connection.cursor() as opened:
        opened.execute("BEGIN TRANSACTION READ ONLY")
        yield opened


@pytest.mark.parametrize("value", VALUES)
def test_values_are_those_of_the_engine_in_whatever_they_are_nested(value: str) -> None:
    shaped = ", ".join(f"{shape.format(value)} AS a{place}" for place, shape in enumerate(SHAPES))
    sql = f'SELECT {shaped}, {value} AS b, 2 AS a, 3 AS a, 4 AS "A"'
    with duckdb.connect(":memory:") as connection:
        expected = connection.execute(sql)
        described = [(str(name), str(kind)) for name, kind, *_ in expected.description or ()]
        plain = expected.fetchall()
        rows = fetch(connection, sql, 10, MOST, MOST)
    assert repr(rows.rows) == repr(plain)
    assert list(zip(rows.columns, rows.types, strict=True)) == described
    assert not rows.truncated


def test_rows_of_nested_values_are_capped_like_others(cursor: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT [i, i] AS pair FROM range(500) AS t(i)"
    by_rows = fetch(cursor, sql, 7, MOST, MOST)
    assert (by_rows.rows[-1], len(by_rows.rows), by_rows.truncated_by) == (([6, 6],), 7, "rows")
    cursor.execute("DROP TABLE temp.main.answer")
    by_bytes = fetch(cursor, sql, 400, 240, MOST)
    assert (len(by_bytes.rows), by_bytes.truncated_by) == (10, "bytes")
    cursor.execute("DROP TABLE temp.main.answer")
    assert not fetch(cursor, f"{sql} WHERE i < 7", 7, MOST, MOST).truncated


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list({'a': event_seq, 'b': timestamp_ns}) FROM events",
        "SELECT string_agg(metric_name || timestamp_ns, ', ') FROM events",
        "SELECT array_agg(e) FROM events AS e",
        "SELECT metric_name, map(list(timestamp_ns), list(node_id)) FROM events GROUP BY ALL",
        "SELECT to_json(list(timestamp_ns)) FROM events",
        "SELECT json_group_array(timestamp_ns) FROM events",
    ],
)
def test_a_value_that_memory_cannot_hold_is_an_error_before_it_is_made(tmp_path: Path, sql: str) -> None:
    with open_store(tmp_path / "a.duckdb", limits=StoreLimits(result_bytes=20_000)) as store:
        store.append(samples(20_000)).result(timeout=20)
        with pytest.raises(QueryError, match=r"needs? more than .* MiB of memory; aggregate or filter first"):
            store.query(check(sql), limit=10)
        assert store.query(check("SELECT list(timestamp_ns) FROM events WHERE timestamp_ns < 3"), limit=1).rows


def test_a_file_that_is_only_read_can_answer_with_lists(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.duckdb") as store:
        store.append(samples(3)).result(timeout=20)
    with open_store(tmp_path / "a.duckdb", read_only=True) as reader:
        for _ in range(2):
            assert reader.query(check("SELECT list(timestamp_ns) FROM events"), limit=1).rows == [([0, 1, 2],)]


def bytes_of(cell: object) -> int:
    """What a value adds to an answer, told from the value."""
    if isinstance(cell, str):
        return len(cell.encode())
    if isinstance(cell, list | tuple):
        return 8 + sum(map(bytes_of, cell))
    if isinstance(cell, dict):
        return 8 + sum(len(key) + bytes_of(value) for key, value in cell.items())
    return 8


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9) | st.none(), max_size=4) | st.none(), min_size=1, max_size=50))
def test_sizes_of_lists_are_told_without_making_them(lists: list[list[int | None] | None]) -> None:
    assert sizes("SELECT unnest($1::INTEGER[][])", lists) == [bytes_of(one) for one in lists]


@settings(deadline=None)
@given(st.lists(st.lists(st.lists(st.text("abü", max_size=4), max_size=3), max_size=3), min_size=1, max_size=40))
def test_sizes_of_texts_in_lists_of_lists(lists: list[list[list[str]]]) -> None:
    assert sizes("SELECT unnest($1::VARCHAR[][][])", lists) == [bytes_of(one) for one in lists]


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({"x": st.integers(0, 9), "yy": st.lists(st.text("ab", max_size=3), max_size=3)}),
        min_size=1,
        max_size=40,
    )
)
def test_sizes_of_structs(structs: list[dict[str, object]]) -> None:
    assert sizes("SELECT unnest($1::STRUCT(x INTEGER, yy VARCHAR[])[])", structs) == [bytes_of(one) for one in structs]


ENGINE = duckdb.connect(":memory:")


def sizes(sql: str, values: object) -> list[int]:
    with ENGINE.cursor() as connection:
        connection.execute("CREATE TEMP TABLE answer AS " + sql, [values])
        with connection.sql("FROM answer").to_arrow_reader(16) as reader:
            return [int(size) for size in np.concatenate([row_sizes(batch) for batch in reader])]
