"""Greedy queries beside the writer: they wait in order, they are stopped, and they never cost a batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ingero_mcp.errors import QueryError, QueryTimeout, StoreBusy
from ingero_mcp.limits import MIB, StoreLimits
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store, running
from ingero_mcp.store import writer as writing
from ingero_mcp.store.housekeeping import is_out_of_memory
from ingero_mcp.store.places import Places
from tests.store.test_store import ENDLESS, ask, samples
from tests.store.test_trouble import until


@contextmanager
def asking(store: Store, sql: str) -> Iterator[list[BaseException]]:
    """Ask in a thread of its own; when it has ended, the list holds what it raised."""
    started, raised = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            store.query(check(sql), limit=1, on_start=lambda _: started.set())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(10)
    yield raised
    thread.join(30)
    assert not thread.is_alive()


def test_who_waits_longest_is_next() -> None:
    places = Places(1, wait_s=10)
    first = places.take()
    order: list[int] = []

    def take(number: int) -> None:
        place = places.take()
        order.append(number)
        places.leave(place)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(5)]
    for number, thread in enumerate(threads):
        thread.start()
        until(lambda number=number: len(places._waiting) == number + 1)  # type: ignore[misc]
    places.leave(first)
    for thread in threads:
        thread.join(10)
    assert order == list(range(5))


def test_one_who_gave_up_waiting_holds_up_nobody() -> None:
    places = Places(1, wait_s=0.05)
    first = places.take()
    with pytest.raises(StoreBusy, match="1 queries are running"):
        places.take()
    places.leave(first)
    places.leave(places.take())


def test_nothing_starts_while_ingestion_needs_the_room() -> None:
    places = Places(2, wait_s=0.05)
    places.leave(places.take())
    with places.cleared(1), pytest.raises(StoreBusy):
        places.take()
    places.leave(places.take())


def test_a_query_that_is_stuck_is_not_waited_for() -> None:
    places = Places(2, wait_s=1)
    place = places.take()
    with places.cleared(0.05):
        assert place.evicted and place.is_stuck
    with places.cleared(3600):
        assert place.is_stuck


def test_a_commit_without_memory_stops_queries_and_is_done_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = writing.insert
    store.append(samples(2000)).result(timeout=10)

    def insert_when_alone(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table, next_seq: int) -> int:
        if store._reader._places._running:
            raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 2.0 KiB")
        return insert(cursor, table, rows, next_seq)

    monkeypatch.setattr(writing, "insert", insert_when_alone)
    with asking(store, ENDLESS) as raised:
        assert store.append(samples(10)).result(timeout=30).rows == 10
    [error] = raised
    assert isinstance(error, QueryError) and "storing new events needed the memory" in str(error)
    assert store.failure is None
    assert ask(store, "SELECT count(*) FROM events") == [(2010,)]


def test_a_commit_that_finds_no_memory_at_all_may_be_sent_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> int:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(writing, "insert", never)
        assert isinstance(store.append(samples(1), key=b"k").exception(timeout=10), StoreBusy)
    monkeypatch.setattr(writing, "_RETRY_S", 0.0)
    until(lambda: sends(store, b"k", 1))
    assert ask(store, "SELECT count(*) FROM events") == [(1,)]


def sends(store: Store, key: bytes, rows: int) -> bool:
    """Send as a producer does, once; says whether it was acknowledged."""
    try:
        return store.append(samples(rows), key=key).result(timeout=30).rows in (rows, 0)
    except StoreBusy:
        return False


def test_a_commit_that_happened_although_it_failed_is_not_made_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert, commits = writing.insert, []

    def commit_and_fail(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table, next_seq: int) -> int:
        next_seq = insert(cursor, table, rows, next_seq)
        if not commits:
            # What happens where the engine finds no memory for the word that it did commit.
            commits.append(cursor.execute("COMMIT"))
            raise duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 2.0 KiB")
        return next_seq

    monkeypatch.setattr(writing, "insert", commit_and_fail)
    assert store.append(samples(3)).result(timeout=10).rows == 3
    assert store.append(samples(4), key=b"k").result(timeout=10).rows == 4
    assert ask(store, "SELECT count(*) FROM events") == [(7,)]


def test_queries_that_fill_the_memory_cost_no_batch(tmp_path: Path) -> None:
    limits = StoreLimits(memory_bytes=150 * MIB, temp_bytes=100 * MIB, threads=2, query_timeout_s=20)
    greedy = "SELECT len(list(hash(a.range, b.range))) FROM range(1000000) a, range(1000) b"
    refused, stop = [0, 0, 0], threading.Event()
    with open_store(tmp_path / "a.duckdb", limits=limits) as store:

        def read(number: int) -> None:
            while not stop.is_set():
                # Busy, while the engine is opened again after it ran out of memory in a commit.
                with pytest.raises((QueryError, StoreBusy)):
                    store.query(check(greedy), limit=1)
                refused[number] += 1

        threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        sent = 0
        while min(refused) < 3 or sent < 50:
            assert sent < 20_000
            until(lambda sent=sent: sends(store, b"%d" % sent, 200))  # type: ignore[misc]
            sent += 1
        stop.set()
        for thread in threads:
            thread.join(60)
        assert ask(store, "SELECT count(*) FROM events") == [(sent * 200,)]
        assert store.failure is None


def test_who_asked_is_told_in_time_though_the_engine_cannot_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_GRACE_S", 0.1)
    go_on = threading.Event()
    with open_store(tmp_path / "a.duckdb", limits=StoreLimits(concurrent_queries=1, wait_s=0.1)) as store:
        with pytest.raises(QueryTimeout):
            store._reader._run(lambda _: go_on.wait(30), 0.1, None)
        with pytest.raises(StoreBusy, match="1 queries are running"):
            ask(store, "SELECT 1")
        assert store.append(samples(3)).result(timeout=10).rows == 3
        go_on.set()
        until(lambda: not running.is_any_running())
        assert ask(store, "SELECT count(*) FROM events") == [(3,)]


def test_a_long_text_is_cut_in_the_engine_and_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.duckdb", limits=StoreLimits(cell_bytes=40)) as store:
        store.append(samples(3)).result(timeout=10)
        sql = "SELECT timestamp_ns, concat_ws('-', {}) AS t, 'short' AS t FROM events ORDER BY timestamp_ns DESC"
        rows = store.query(check(sql.format(", ".join(["'ü234567890'"] * 6))), limit=5)
        assert rows.columns == ("timestamp_ns", "t", "t")
        assert [row[0] for row in rows.rows] == [2, 1, 0]
        assert rows.rows[0][1:] == ("ü234567890[cut: 71 bytes]", "short")
        with pytest.raises(QueryError, match="octet_length"):
            store.query(
                check("SELECT encode(concat_ws('-', 'a23456789012345678901234567890', 'b2345678901'))"), limit=5
            )


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("Out of Memory Error: failed to offload data block of size 32.0 KiB (1.0 GiB/1.0 GiB used).", True),
        ("TransactionContext Error: Failed to commit: failed to pin block of size 256.0 KiB", True),
        (
            "Invalid Input Error: exporting a stream from the object registered as 'incoming' failed: MemoryError: ",
            True,
        ),
        ("Constraint Error: duplicate key", False),
    ],
)
def test_want_of_memory_is_told_from_other_errors(text: str, is_so: bool) -> None:
    assert is_out_of_memory(duckdb.Error(text)) is is_so


def test_a_checkpoint_stops_queries_only_if_they_hold_much(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(samples(2000)).result(timeout=10)
    with asking(store, ENDLESS) as raised:
        writing.checkpoint(store._engine, store._reader._places)
        assert raised == []
        monkeypatch.setattr(type(store._engine), "share_held_by_queries", lambda _: 0.6)
        writing.checkpoint(store._engine, store._reader._places)
    assert [type(error) for error in raised] == [QueryError]
