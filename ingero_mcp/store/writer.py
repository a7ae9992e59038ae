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

from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.clock import monotonic_s, now_ns
from ingero_mcp.errors import DiskFull, IngeroError, StoreBusy
from ingero_mcp.events import FIRST_SERVER_SEQ
from ingero_mcp.limits import MIB, StoreLimits
from ingero_mcp.store import node_clocks
from ingero_mcp.store.engine import Engine
from ingero_mcp.store.epochs import Epochs
from ingero_mcp.store.schema import BATCHES, NODE_CLOCKS, ROWS
from ingero_mcp.store.transaction import Key, claim, insert, roll_back

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
        self._epochs = Epochs()
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
        return self._accept(_Pending(batch, key, table))

    def keep_clocks(self, clocks: pa.RecordBatch) -> Future[Appended]:
        """Queue clocks of nodes (`node_clocks.SCHEMA`); as `append`."""
        return self._accept(_Pending(clocks, None, NODE_CLOCKS))

    def _accept(self, pending: _Pending) -> Future[Appended]:
        with self._changed:
            if self._closing:
                raise StoreBusy("the store is closing; send the batch again to its successor")
            if self._failure is not None and monotonic_s() < self._retry_at_s:
                raise type(self._failure)(*self._failure.args)
            if self._queued_rows and self._queued_rows + pending.batch.num_rows > self._limits.queued_rows:
                raise StoreBusy(f"{self._queued_rows} rows are waiting to be written; send the batch again later")
            self._queue.append(pending)
            self._queued_rows += pending.batch.num_rows
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
                is_fresh = claim(cursor, [pending.key for pending in group])
                fresh = [pending for pending, fresh in zip(group, is_fresh, strict=True) if fresh]
                for table, batches in _by_table(fresh).items():
                    if table == NODE_CLOCKS:
                        for clocks in batches:
                            node_clocks.insert(cursor, clocks)
                        continue
                    rows = pa.Table.from_batches(batches)
                    if table == ROWS:
                        self._epochs.note(cursor, rows)
                    next_seq = insert(cursor, table, rows, next_seq)
                cursor.execute("COMMIT")
            except BaseException as error:
                if isinstance(error, duckdb.Error):
                    self._engine.report(error)
                self._epochs.forget()
                roll_back(cursor)
                raise
        self._next_seq = next_seq
        return [
            Appended(pending.batch.num_rows) if fresh else Appended(0, duplicate=True)
            for pending, fresh in zip(group, is_fresh, strict=True)
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


def _by_table(group: list[_Pending]) -> dict[str, list[pa.RecordBatch]]:
    batches: dict[str, list[pa.RecordBatch]] = {}
    for pending in group:
        batches.setdefault(pending.table, []).append(pending.batch)
    return batches
