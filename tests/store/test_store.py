"""The store: acknowledged means committed, one owner per file, and a wrong file is left as it was."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ingero_mcp.batches import batch
from ingero_mcp.errors import QueryError, QueryTimeout, SchemaError, StoreBusy, StoreError, StoreLocked
from ingero_mcp.events import FIRST_SERVER_SEQ
from ingero_mcp.limits import StoreLimits
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from ingero_mcp.store.schema import VERSION


def samples(count: int, node: str = "n", first_seq: int | None = None) -> pa.RecordBatch:
    numbers = None if first_seq is None else list(range(first_seq, first_seq + count))
    return batch(
        {"node_id": node, "metric_name": "m", "timestamp_ns": list(range(count)), "event_seq": numbers}, rows=count
    )


def ask(store: Store, sql: str) -> list[tuple[object, ...]]:
    return store.query(check(sql), limit=1000).rows


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with open_store(path) as store:
        assert store.append(samples(10)).result(timeout=10).rows == 10
    with open_store(path) as store:
        assert ask(store, "SELECT count(*) FROM events") == [(10,)]


def test_a_batch_with_a_known_key_is_acknowledged_and_not_stored(store: Store) -> None:
    assert store.append(samples(3), key=b"k").result(timeout=10).rows == 3
    again = store.append(samples(3), key=b"k").result(timeout=10)
    assert (again.rows, again.duplicate) == (0, True)
    assert ask(store, "SELECT count(*) FROM events") == [(3,)]


def test_the_same_key_twice_in_one_commit_is_stored_once(store: Store) -> None:
    futures = [store.append(samples(2), key=b"same") for _ in range(50)]
    results = [future.result(timeout=10) for future in futures]
    assert sum(result.rows for result in results) == 2
    assert ask(store, "SELECT count(*) FROM events") == [(2,)]


def test_events_without_a_number_get_one_that_no_producer_uses(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    for _ in range(2):
        with open_store(path) as store:
            store.append(samples(2)).result(timeout=10)
            store.append(samples(1, first_seq=5)).result(timeout=10)
    with open_store(path) as store:
        numbers = [number for (number,) in ask(store, "SELECT event_seq FROM events ORDER BY ALL")]
    assert numbers == [5, 5, *range(FIRST_SERVER_SEQ, FIRST_SERVER_SEQ + 4)]


def test_closing_commits_what_was_accepted(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    store = open_store(path)
    futures = [store.append(samples(100)) for _ in range(20)]
    store.close()
    store.close()
    assert all(future.result(timeout=0).rows == 100 for future in futures)
    with pytest.raises(StoreBusy, match="closing"):
        store.append(samples(1))
    with open_store(path) as reopened:
        assert ask(reopened, "SELECT count(*) FROM events") == [(2000,)]


def test_a_full_queue_is_said_and_loses_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.duckdb", limits=StoreLimits(queued_rows=50, group_rows=10)) as store:
        accepted = 0
        refused = 0
        for _ in range(500):
            try:
                store.append(samples(10))
                accepted += 10
            except StoreBusy:
                refused += 1
    with open_store(tmp_path / "a.duckdb") as store:
        assert ask(store, "SELECT count(*) FROM events") == [(accepted,)]
    assert refused > 0


def test_a_second_owner_is_told_who_owns_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    link = tmp_path / "alias.duckdb"
    with open_store(path) as store:
        store.announce("http://127.0.0.1:8080", "")
        link.symlink_to(path)
        for name in (path, link, Path(os.path.relpath(path))):
            with pytest.raises(StoreLocked, match=f"process {os.getpid()}; ask it at http://127.0.0.1:8080"):
                open_store(name)
            with pytest.raises(StoreLocked):
                open_store(name, read_only=True)


def test_readers_share_a_file_and_keep_owners_out(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    open_store(path).close()
    with open_store(path, read_only=True) as one, open_store(path, read_only=True) as two:
        assert ask(one, "SELECT count(*) FROM events") == ask(two, "SELECT count(*) FROM events") == [(0,)]
        with pytest.raises(StoreError, match="reading only"):
            one.append(samples(1))
        with pytest.raises(StoreLocked):
            open_store(path)


def test_reading_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with open_store(path) as store:
        store.append(samples(5)).result(timeout=10)
    before = digest(path)
    with open_store(path, read_only=True) as store:
        ask(store, "SELECT count(*) FROM events")
    assert digest(path) == before


def foreign(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE theirs (x INTEGER)")


def newer(path: Path) -> None:
    open_store(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"UPDATE ingero_private.version SET number = {VERSION + 1}")


def sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()


def truncated(path: Path) -> None:
    open_store(path).close()
    os.truncate(path, 5000)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (foreign, "not one of ours .it holds main.theirs."),
        (newer, "written by a newer ingero"),
        (sqlite, "is a SQLite database"),
        (truncated, "cannot be opened"),
        (lambda path: path.write_text("hello"), "not a DuckDB database"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_and_left_as_it_was(tmp_path: Path, make: object, words: str) -> None:
    assert callable(make)
    path = tmp_path / "wrong.duckdb"
    make(path)
    before = digest(path)
    for read_only in (False, True):
        with pytest.raises(SchemaError, match=words) as refused:
            open_store(path, read_only=read_only)
        assert "\n" not in str(refused.value)
    assert digest(path) == before
    assert not path.with_name("wrong.duckdb.wal").exists()


def test_a_missing_file_or_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        open_store(tmp_path / "none.duckdb", read_only=True)
    with pytest.raises(StoreError, match=r"the folder .* does not exist"):
        open_store(tmp_path / "no" / "such.duckdb")
    with pytest.raises(StoreError, match="is a folder"):
        open_store(tmp_path)


def test_rows_and_bytes_of_an_answer_are_capped(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.duckdb", limits=StoreLimits(result_bytes=1000)) as store:
        store.append(samples(500)).result(timeout=10)
        by_rows = store.query(check("SELECT timestamp_ns FROM events"), limit=7)
        assert (len(by_rows.rows), by_rows.truncated_by) == (7, "rows")
        by_bytes = store.query(check("SELECT timestamp_ns FROM events"), limit=400)
        assert by_bytes.truncated_by == "bytes"
        assert len(by_bytes.rows) == 125
        exact = store.query(check("SELECT timestamp_ns FROM events WHERE timestamp_ns < 7"), limit=7)
        assert not exact.truncated


ENDLESS = "SELECT count(*) FROM events a, events b, events c, events d"


def test_a_query_that_runs_too_long_is_stopped_while_writing_goes_on(store: Store) -> None:
    store.append(samples(2000)).result(timeout=10)
    running, outcome = threading.Event(), []

    def run() -> None:
        with pytest.raises(QueryTimeout) as stopped:
            store.query(check(ENDLESS), limit=1, timeout_s=3, on_start=lambda _: running.set())
        outcome.append(stopped.value)

    thread = threading.Thread(target=run)
    thread.start()
    assert running.wait(10)
    assert store.append(samples(10)).result(timeout=10).rows == 10
    assert thread.is_alive()
    thread.join(20)
    assert len(outcome) == 1
    assert ask(store, "SELECT count(*) FROM events") == [(2010,)]


@contextmanager
def interrupting() -> Iterator[Callable[[Callable[[], None]], None]]:
    """An `on_start` that interrupts what it is told of until the end of the `with` block."""
    ended = threading.Event()

    def keep_interrupting(interrupt: Callable[[], None]) -> None:
        # One interrupt that comes before the engine starts is lost, so it is repeated.
        def repeat() -> None:
            while not ended.wait(0.01):
                interrupt()

        threading.Thread(target=repeat).start()

    try:
        yield keep_interrupting
    finally:
        ended.set()


def test_a_cancelled_query_stops(store: Store) -> None:
    store.append(samples(2000)).result(timeout=10)
    with interrupting() as keep_interrupting, pytest.raises(QueryError, match="cancelled"):
        store.query(check(ENDLESS), limit=1, on_start=keep_interrupting)


def test_nested_cells_count_towards_the_cap_of_bytes(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.duckdb", limits=StoreLimits(result_bytes=1000)) as store:
        store.append(samples(500)).result(timeout=10)
        rows = store.query(check("SELECT list(metric_name || timestamp_ns) FROM events"), limit=10)
        assert rows.truncated_by == "bytes"


def test_an_unknown_column_is_the_querys_fault(store: Store) -> None:
    with pytest.raises(QueryError, match="nodeid"):
        ask(store, "SELECT nodeid FROM events")


def test_the_engine_is_locked_down(store: Store) -> None:
    # What the guard would refuse must fail in the engine too: both walls stand.
    with store._engine.cursor() as cursor:
        for statement in (
            "SET memory_limit = '1GB'",
            "SELECT * FROM read_csv('/etc/passwd')",
            "COPY (SELECT 1) TO '/tmp/out.csv'",
            "INSTALL httpfs",
        ):
            with pytest.raises(duckdb.Error):
                cursor.execute(statement)
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        with pytest.raises(duckdb.Error, match="read-only"):
            cursor.execute("DELETE FROM ingero_private.event_rows")
