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
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
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
from ingero_mcp.store.housekeeping import (
    CLEARING_S,
    SHARE_AT_COMMIT,
    checkpoint,
    in_background,
    is_out_of_memory,
    room,
)
from ingero_mcp.store.places import Places
from ingero_mcp.store.schema import BATCHES, NODE_CLOCKS, ROWS
from ingero_mcp.store.transaction import Key, claim, insert, roll_back

_log = logging.getLogger(__name__)
_IDLE_S: Final = 2.0
_RETRY_S: Final = 1.0
_FORGET_EVERY_S: Final = 3600.0
# Measured: with 16 MB (DuckDB's own choice) the slowest of 400 inserts took 463 ms, with this 21 ms.
_LOG_BYTES: Final = 256 * MIB
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
    is_new: bool = False  # its key was not there when a commit was tried first
    done: Future[Appended] = field(default_factory=Future)


class Writer:
    """Accepts batches from any thread; commits them from its own."""

    def __init__(self, engine: Engine, places: Places, path: Path | None, limits: StoreLimits) -> None:
        self._engine = engine
        self._places = places
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
        self._checkpoint_at_s = 0.0
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
        return self._accept(_Pending(batch, key or Key(token_bytes(16)), table))

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
            in_background(self._engine, f"DELETE FROM {BATCHES} WHERE received_ns < {oldest_ns}")
        if self._dirty and monotonic_s() >= self._checkpoint_at_s and (idle or self._log_bytes() > _LOG_BYTES):
            self._checkpoint_at_s = monotonic_s() + _RETRY_S
            self._dirty = not checkpoint(self._engine, self._places)

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
            results = self._commit_in_any_case(group)
        except Exception as error:  # whatever it is: a writer that died would leave every producer waiting
            may_be_one_of_them = not isinstance(error, StoreBusy | OSError) and not is_out_of_memory(error)
            if len(group) > 1 and not self._engine.broken and may_be_one_of_them:
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

    def _commit_in_any_case(self, group: list[_Pending]) -> list[Appended]:
        """Commit; if queries have left no memory for that, stop them first.

        A commit that says it had no memory may have happened all the same: it is the keys that tell.
        """
        with ExitStack() as held:
            held.enter_context(room(self._engine, self._places, SHARE_AT_COMMIT))
            for most_s in CLEARING_S:
                try:
                    return self._commit(group)
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    _log.info("queries are stopped, because a commit needs their memory: %s", error)
                held.enter_context(self._places.cleared(most_s, even_stuck=most_s > CLEARING_S[0]))
            return self._commit(group)

    def _commit(self, group: list[_Pending]) -> list[Appended]:
        self._require_space()
        with self._engine.cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                is_fresh = claim(cursor, [pending.key for pending in group])
                fresh = [pending for pending, fresh in zip(group, is_fresh, strict=True) if fresh]
                for pending in fresh:
                    pending.is_new = True
                for table, batches in _by_table(fresh).items():
                    if table == NODE_CLOCKS:
                        for clocks in batches:
                            node_clocks.insert(cursor, clocks)
                        continue
                    rows = pa.Table.from_batches(batches)
                    if table == ROWS:
                        self._epochs.note(cursor, rows)
                    # Never given twice, whatever becomes of this transaction.
                    self._next_seq = insert(cursor, table, rows, self._next_seq)
                cursor.execute("COMMIT")
            except BaseException as error:
                if isinstance(error, duckdb.Error):
                    self._engine.report(error)
                self._epochs.forget()
                roll_back(cursor)
                raise
        return [
            Appended(pending.batch.num_rows) if pending.is_new else Appended(0, duplicate=True) for pending in group
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

    def _log_bytes(self) -> int:
        """How long the write-ahead log is."""
        try:
            return Path(f"{self._path}.wal").stat().st_size if self._path else 0
        except OSError:
            return 0

    def _first_free_seq(self) -> int:
        with self._engine.cursor() as cursor:
            row = cursor.execute(f"SELECT max(event_seq) FROM {ROWS} WHERE event_seq >= {FIRST_SERVER_SEQ}").fetchone()
        return FIRST_SERVER_SEQ if row is None or row[0] is None else int(row[0]) + 1


def _by_table(group: list[_Pending]) -> dict[str, list[pa.RecordBatch]]:
    batches: dict[str, list[pa.RecordBatch]] = {}
    for pending in group:
        batches.setdefault(pending.table, []).append(pending.batch)
    return batches
