"""`Store.table`: what the analysis reads, under the same limits as a query."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ingero_mcp.errors import GuardError, QueryError, QueryTimeout
from ingero_mcp.limits import MIB, StoreLimits
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from tests.store.test_store import ENDLESS, interrupting, samples

PAIRS = "SELECT a.timestamp_ns, b.timestamp_ns FROM events a, events b, events c"


def table(store: Store, sql: str, max_bytes: int = 64 * MIB) -> pa.Table:
    return store.table(check(sql), max_bytes=max_bytes)


def test_all_rows_come_whatever_the_cap_of_an_answer(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.duckdb", limits=StoreLimits(result_bytes=1000)) as store:
        store.append(samples(50_000)).result(timeout=10)
        read = table(store, "SELECT timestamp_ns, node_id FROM events ORDER BY timestamp_ns")
        assert read.column("timestamp_ns").to_pylist() == list(range(50_000))
        assert read.schema == pa.schema([("timestamp_ns", pa.int64()), ("node_id", pa.string())])


def test_a_table_without_rows_has_its_columns(store: Store) -> None:
    read = table(store, "SELECT rank, metric_name FROM events")
    assert (read.num_rows, read.column_names) == (0, ["rank", "metric_name"])


def test_more_than_may_be_held_is_an_error_before_it_is_held(store: Store) -> None:
    store.append(samples(2000)).result(timeout=10)
    with pytest.raises(QueryError, match="more than 1 MiB of memory; narrow the time window"):
        table(store, PAIRS, MIB)
    assert table(store, "SELECT count(*) FROM events").to_pylist() == [{"count_star()": 2000}]


def test_a_table_is_checked_and_read_only_like_any_query(store: Store) -> None:
    with pytest.raises(GuardError):
        table(store, "SELECT * FROM ingero_private.event_rows")
    with pytest.raises(QueryError, match="nodeid"):
        table(store, "SELECT nodeid FROM events")
    store.append(samples(20)).result(timeout=10)
    with pytest.raises(QueryError, match="Could not convert"):
        table(store, "SELECT CAST(metric_name AS INTEGER) FROM events")


@pytest.mark.parametrize("sql", [ENDLESS, f"{PAIRS} WHERE a.timestamp_ns + b.timestamp_ns + c.timestamp_ns < 3"])
def test_a_table_that_takes_too_long_is_stopped(store: Store, sql: str) -> None:
    store.append(samples(2000)).result(timeout=10)
    with pytest.raises(QueryTimeout):
        store.table(check(sql), max_bytes=1 << 40, timeout_s=0.5)


def test_a_table_whose_reader_gave_up_stops(store: Store) -> None:
    store.append(samples(2000)).result(timeout=10)
    with interrupting() as keep_interrupting, pytest.raises(QueryError, match="cancelled"):
        store.table(check(ENDLESS), max_bytes=MIB, on_start=keep_interrupting)
