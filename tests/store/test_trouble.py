"""When things go wrong underneath: nobody waits for ever, nothing acknowledged is lost, and it goes on by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ingero_mcp.batches import batch
from ingero_mcp.errors import DiskFull, StoreBusy, StoreLocked
from ingero_mcp.limits import StoreLimits
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from ingero_mcp.store import writer as writing
from ingero_mcp.store.engine import Engine


def samples(count: int) -> pa.RecordBatch:
    return batch({"node_id": "n", "metric_name": "m", "timestamp_ns": list(range(count))}, rows=count)


def count(store: Store) -> int:
    [[number]] = store.query(check("SELECT count(*) FROM events"), limit=1).rows
    assert isinstance(number, int)
    return number


def until(claim: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def send(store: Store, rows: int) -> None:
    """Append as a producer does: again and again while the store asks for that."""

    def try_once() -> bool:
        try:
            store.append(samples(rows)).result(timeout=10)
        except StoreBusy:
            return False
        return True

    until(try_once)


def test_a_caller_who_gives_up_does_not_stop_the_writer(store: Store) -> None:
    futures = [store.append(samples(1)) for _ in range(200)]
    cancelled = sum(future.cancel() for future in futures)
    assert store.append(samples(1)).result(timeout=10).rows == 1
    assert count(store) == 201 - cancelled


def test_a_batch_that_is_not_one_of_events_is_refused_at_the_door(store: Store) -> None:
    with pytest.raises(TypeError, match="columns of events"):
        store.append(pa.RecordBatch.from_pydict({"x": [1]}))
    assert store.append(samples(1)).result(timeout=10).rows == 1


def test_one_batch_at_fault_does_not_fail_its_neighbours(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = writing.insert

    def refuse_seven(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table, next_seq: int) -> int:
        if 7 in {chunk.num_rows for chunk in rows.to_batches()}:
            raise ValueError("this one is odd")
        return insert(cursor, table, rows, next_seq)

    monkeypatch.setattr(writing, "insert", refuse_seven)
    monkeypatch.setattr(writing, "_RETRY_S", 0.0)
    futures = [store.append(samples(rows)) for rows in (1, 7, 2, 3)]
    outcomes = [future.exception(timeout=10) for future in futures]
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreBusy, type(None), type(None)]
    assert count(store) == 6


def test_a_full_disk_is_said_and_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "a.duckdb") as store:
        store.append(samples(5)).result(timeout=10)
        monkeypatch.setattr(writing, "_FLOOR_SHARE", 2.0)
        monkeypatch.setattr(writing, "_FLOOR_BYTES", 1 << 62)
        assert isinstance(store.append(samples(5)).exception(timeout=10), DiskFull)
        assert isinstance(store.failure, DiskFull)
        with pytest.raises(DiskFull):
            store.append(samples(5))
        assert count(store) == 5
        monkeypatch.undo()
        send(store, 5)
        assert store.failure is None
        assert count(store) == 10


def test_after_a_fatal_error_the_database_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = writing.insert
    fatal = [duckdb.FatalException("FATAL Error: database has been invalidated")]

    def fail_once(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table, next_seq: int) -> int:
        if fatal:
            raise fatal.pop()
        return insert(cursor, table, rows, next_seq)

    with open_store(tmp_path / "a.duckdb") as store:
        store.append(samples(5)).result(timeout=10)
        monkeypatch.setattr(writing, "insert", fail_once)
        assert isinstance(store.append(samples(5)).exception(timeout=10), StoreBusy)
        assert store.failure is not None
        send(store, 5)
        assert store.failure is None
        assert count(store) == 10


def test_a_fatal_error_in_a_query_is_mended_too(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with open_store(path) as store:
        store.append(samples(5)).result(timeout=10)
    with open_store(path, read_only=True) as reader:
        assert reader._engine.report(duckdb.FatalException("database has been invalidated"))
        assert reader.failure is not None
        assert count(reader) == 5
        assert reader.failure is None


def test_keys_are_forgotten_in_time_even_under_load_but_lasting_ones_never(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.duckdb", limits=StoreLimits(retry_memory_s=0.2)) as store:
        store.append(samples(3), key=b"file", lasting=True).result(timeout=10)
        store.append(samples(3), key=b"batch").result(timeout=10)

        def is_forgotten() -> bool:
            store.append(samples(1)).result(timeout=10)
            return not store.append(samples(1), key=b"batch").result(timeout=10).duplicate

        until(is_forgotten)
        assert store.append(samples(3), key=b"file", lasting=True).result(timeout=10).duplicate


def test_a_store_that_cannot_be_opened_lets_go_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.duckdb"
    open_store(path).close()

    def broken(_: object) -> None:
        raise duckdb.IOException("no")

    with monkeypatch.context() as patched, pytest.raises(duckdb.IOException):
        patched.setattr(writing.Writer, "_first_free_seq", broken)
        open_store(path)
    open_store(path).close()


def test_an_owner_that_is_gone_is_not_named(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with open_store(path) as store:
        store.announce("http://127.0.0.1:1", "")
    with open_store(path, read_only=True), pytest.raises(StoreLocked, match="being read by another process"):
        open_store(path)


def test_views_are_those_of_this_program_after_opening(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    open_store(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE OR REPLACE VIEW main.nodes AS SELECT 'old' AS node_id")
    with open_store(path) as store:
        assert store.query(check("SELECT * FROM nodes"), limit=1).columns[0] == "cluster_id"


def test_a_closed_engine_is_busy_and_not_an_accident(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "a.duckdb", StoreLimits(), read_only=False)
    engine.close()
    engine.close()
    with pytest.raises(StoreBusy), engine.cursor():
        pass
