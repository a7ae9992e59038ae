"""The writer: one thread that commits what producers hand over, many batches in one transaction.

A batch is acknowledged when its transaction has been committed, never before. A batch whose key is already in the
file was committed earlier (the producer did not hear it) and is acknowledged without being stored again.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.clock import monotonic_s, now_ns
from ingero_mcp.errors import DiskFull, IngeroError, StoreBusy
from ingero_mcp.events import FIRST_SERVER_SEQ
from ingero_mcp.limits import MIB, StoreLimits
from ingero_mcp.store.engine import Engine
from ingero_mcp.store.schema import BATCHES, ROWS

_log = logging.getLogger(__name__)
_IDLE_S: Final = 2.0
_RETRY_S: Final = 1.0
_FORGET_EVERY_S: Final = 3600.0
_FLOOR_BYTES: Final = 512 * MIB  # twice the write-ahead log at its largest, so that a checkpoint has room
_FLOOR_SHARE: Final = 0.02


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of a batch: `rows` stored now (0 if it was a `duplicate` of one already stored)."""

    rows: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """What identifies a batch. A `lasting` key is never forgotten, others after the retry memory of the store."""

    value: bytes
    lasting: bool = False


@dataclass(slots=True)
class _Pending:
    batch: pa.RecordBatch
    key: Key | None
    table: str
    done: Future[Appended] = field(default_factory=Future)


class Writer:
    """Accepts batches from any thread; commits them from its own."""

    def __init__(self, engine: Engine, path: Path | None, limits: StoreLimits) -> None:
        self._engine = engine
        self._path = path
        self._limits = limits
        self._changed = threading.Condition()
        self._queue: deque[_Pending] = deque()
        self._queued_rows = 0
        self._closing = False
        self._failure: StoreBusy | None = None
        self._retry_at_s = 0.0
        self._dirty = False
        self._forget_at_s = 0.0
        self._next_seq = self._first_free_seq()
        self._thread = threading.Thread(target=self._run, name="ingero-writer")
        self._thread.start()

    @property
    def failure(self) -> IngeroError | None:
        """Why the last commit failed; None while writing works."""
        return self._failure

    def append(self, batch: pa.RecordBatch, key: Key | None, table: str = ROWS) -> Future[Appended]:
        """Queue a batch; the future resolves after its commit. StoreBusy when it cannot be taken now."""
        if batch.schema != ARROW_SCHEMA:
            raise TypeError("the batch does not have the columns of events (batches.ARROW_SCHEMA)")
        pending = _Pending(batch, key, table)
        with self._changed:
            if self._closing:
                raise StoreBusy("the store is closing; send the batch again to its successor")
            if self._failure is not None and monotonic_s() < self._retry_at_s:
                raise type(self._failure)(*self._failure.args)
            if self._queued_rows and self._queued_rows + batch.num_rows > self._limits.queued_rows:
                raise StoreBusy(f"{self._queued_rows} rows are waiting to be written; send the batch again later")
            self._queue.append(pending)
            self._queued_rows += batch.num_rows
            self._changed.notify()
        return pending.done

    def close(self) -> None:
        """Commit everything accepted, then stop; may be called twice."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._queue and not self._closing:
                    self._changed.wait(_IDLE_S)
                if not self._queue and self._closing:
                    return
                idle = not self._queue
                group = self._take_group()
            if group:
                self._write(group)
            self._keep_house(idle)

    def _keep_house(self, idle: bool) -> None:
        """Forget old keys every so often, and checkpoint in a pause."""
        if monotonic_s() >= self._forget_at_s:
            self._forget_at_s = monotonic_s() + min(_FORGET_EVERY_S, self._limits.retry_memory_s)
            oldest_ns = now_ns() - int(self._limits.retry_memory_s * 10**9)
            self._in_background(f"DELETE FROM {BATCHES} WHERE received_ns < {oldest_ns}")
        if idle and self._dirty:
            self._dirty = not self._in_background("CHECKPOINT")

    def _take_group(self) -> list[_Pending]:
        group: list[_Pending] = []
        rows = 0
        while self._queue and (not group or rows + self._queue[0].batch.num_rows <= self._limits.group_rows):
            pending = self._queue.popleft()
            self._queued_rows -= pending.batch.num_rows
            # Whoever gave up waiting has not been promised anything; from here on the outcome is certain.
            if pending.done.set_running_or_notify_cancel():
                group.append(pending)
                rows += pending.batch.num_rows
        return group

    def _write(self, group: list[_Pending]) -> None:
        try:
            results = self._commit(group)
        except Exception as error:  # whatever it is: a writer that died would leave every producer waiting
            if len(group) > 1 and not self._engine.broken and not isinstance(error, StoreBusy | OSError):
                # One of them may be at fault; the others must not pay for it.
                for pending in group:
                    self._write([pending])
                return
            failure = self._note_failure(error)
            for pending in group:
                pending.done.set_exception(failure)
            return
        if self._failure is not None:
            _log.warning("writing works again")
            self._failure = None
        self._dirty = True
        for pending, result in zip(group, results, strict=True):
            pending.done.set_result(result)

    def _commit(self, group: list[_Pending]) -> list[Appended]:
        self._require_space()
        next_seq = self._next_seq
        with self._engine.cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                fresh = _claim(cursor, group)
                for table in sorted({pending.table for pending in fresh}):
                    rows = pa.Table.from_batches([pending.batch for pending in fresh if pending.table == table])
                    next_seq = _insert(cursor, table, rows, next_seq)
                cursor.execute("COMMIT")
            except duckdb.Error as error:
                self._engine.report(error)
                _roll_back(cursor)
                raise
            except BaseException:
                _roll_back(cursor)
                raise
        self._next_seq = next_seq
        stored = {id(pending) for pending in fresh}
        return [
            Appended(pending.batch.num_rows) if id(pending) in stored else Appended(0, duplicate=True)
            for pending in group
        ]

    def _note_failure(self, error: Exception) -> StoreBusy:
        """Remember why writing fails, and say it once."""
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        failure: StoreBusy
        if isinstance(error, DiskFull) or "No space left" in str(error) or "File too large" in str(error):
            failure = DiskFull(f"the disk is full ({text}); acknowledged rows are safe, send the batch again later")
        else:
            failure = StoreBusy(f"writing failed ({text}); send the batch again later")
        if self._failure is None or type(self._failure) is not type(failure):
            _log.error("%s", failure, exc_info=None if isinstance(error, IngeroError | duckdb.Error) else error)
        self._failure = failure
        self._retry_at_s = monotonic_s() + _RETRY_S
        return failure

    def _require_space(self) -> None:
        if self._path is None:
            return
        usage = shutil.disk_usage(self._path.parent)
        if usage.free < min(_FLOOR_BYTES, usage.total * _FLOOR_SHARE):
            raise DiskFull(f"only {usage.free // MIB} MiB are free beside {self._path}")

    def _in_background(self, statement: str) -> bool:
        """Housekeeping that may be refused (a reader holds an old snapshot); says whether it was done."""
        try:
            with self._engine.cursor() as cursor:
                cursor.execute(statement)
        except duckdb.Error as error:
            self._engine.report(error)
            _log.debug("%s: %s", statement.split()[0], error)
            return False
        except StoreBusy:
            return False
        return True

    def _first_free_seq(self) -> int:
        with self._engine.cursor() as cursor:
            row = cursor.execute(f"SELECT max(event_seq) FROM {ROWS} WHERE event_seq >= {FIRST_SERVER_SEQ}").fetchone()
        return FIRST_SERVER_SEQ if row is None or row[0] is None else int(row[0]) + 1


def _claim(cursor: duckdb.DuckDBPyConnection, group: list[_Pending]) -> list[_Pending]:
    """Record the keys of the group; returns the batches that were not stored before."""
    first: dict[bytes, _Pending] = {}
    for pending in group:
        if pending.key is not None:
            first.setdefault(pending.key.value, pending)
    if not first:
        return group
    now = now_ns()
    received = [None if pending.key and pending.key.lasting else now for pending in first.values()]
    keys = pa.table({"key": pa.array(first, type=pa.binary()), "received_ns": pa.array(received, type=pa.int64())})
    cursor.register("keys", keys)
    claimed = cursor.execute(
        f"INSERT INTO {BATCHES} SELECT key, received_ns FROM keys ON CONFLICT DO NOTHING RETURNING key"
    ).fetchall()
    cursor.unregister("keys")
    fresh = {key for (key,) in claimed}
    return [
        pending
        for pending in group
        if pending.key is None or (pending.key.value in fresh and first[pending.key.value] is pending)
    ]


def _insert(cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.Table, next_seq: int) -> int:
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


def _roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error as error:
        # The transaction is already gone, with the instance; the first error is the one to report.
        _log.debug("rollback: %s", error)
