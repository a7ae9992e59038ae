"""The store: one file, one writer thread, any number of readers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from ingero_mcp.clocks import NodeClock
from ingero_mcp.errors import IngeroError, StoreBusy, StoreError
from ingero_mcp.events import Rows
from ingero_mcp.limits import StoreLimits
from ingero_mcp.reader import OnStart
from ingero_mcp.sqlguard import CheckedQuery
from ingero_mcp.store.backup import Progress, copy
from ingero_mcp.store.engine import Engine
from ingero_mcp.store.lock import FileLock
from ingero_mcp.store.node_clocks import batch_of
from ingero_mcp.store.places import Places
from ingero_mcp.store.reader import Reader
from ingero_mcp.store.schema import CONTEXT
from ingero_mcp.store.transaction import Key
from ingero_mcp.store.writer import Appended, Writer


class Store:
    """An open database of events. Use `open_store`; close it, or use it as a context manager."""

    def __init__(self, path: Path | None, limits: StoreLimits, *, read_only: bool) -> None:
        self.path = path
        with ExitStack() as opened:
            self._lock = FileLock(path, shared=read_only) if path else None
            if self._lock is not None:
                opened.callback(self._lock.withdraw)
            self._engine = Engine(path, limits, read_only=read_only)
            opened.pop_all()
            if self._lock is not None:
                opened.callback(self._lock.release)
            opened.callback(self._engine.close)
            places = Places(limits.concurrent_queries, limits.wait_s)
            self._reader = Reader(self._engine, places, limits)
            self._writer = None if read_only else Writer(self._engine, places, path, limits)
            if self._writer is not None:
                opened.callback(self._writer.close)
            self._opened = opened.pop_all()

    @property
    def failure(self) -> IngeroError | None:
        """Why the store fails at present; None while it works."""
        if self._engine.broken:
            return StoreBusy(f"the database has to be reopened after: {self._engine.broken}")
        return self._writer.failure if self._writer else None

    def append(self, batch: pa.RecordBatch, key: bytes | None = None, *, lasting: bool = False) -> Future[Appended]:
        """Queue a batch of events (`batches.ARROW_SCHEMA`); the future resolves once it is committed.

        `key` identifies the batch: one that was stored before is acknowledged and not stored again. A `lasting` key
        is remembered for ever, others for as long as a producer may send the batch again. Raises StoreBusy when the
        batch cannot be taken now, TypeError when it is not one of events.
        """
        return self._writable().append(batch, Key(key, lasting) if key is not None else None)

    def append_context(
        self, batch: pa.RecordBatch, key: bytes | None = None, *, lasting: bool = False
    ) -> Future[Appended]:
        """Queue what a node knew besides its events (stored chains, stacks, sessions, ...); as `append`."""
        return self._writable().append(batch, Key(key, lasting) if key is not None else None, CONTEXT)

    def keep_clocks(self, clocks: Sequence[NodeClock]) -> Future[Appended]:
        """Queue what was found out about clocks; the future resolves once it is committed.

        One of the same cluster, node, rank, time and method takes the place of the one before. Raises as `append`.
        """
        return self._writable().keep_clocks(batch_of(clocks))

    def query(
        self, query: CheckedQuery, *, limit: int, timeout_s: float | None = None, on_start: OnStart | None = None
    ) -> Rows:
        """Run a checked query; at most `limit` rows. Raises QueryTimeout, QueryError or StoreBusy."""
        return self._reader.query(query, limit=limit, timeout_s=timeout_s, on_start=on_start)

    def table(
        self, query: CheckedQuery, *, max_bytes: int, timeout_s: float | None = None, on_start: OnStart | None = None
    ) -> pa.Table:
        """Run a checked query; all rows, as Arrow. QueryError if they need more than `max_bytes`; else as `query`.

        Integers wider than 64 bits (as sum() makes them) are decimals there: cast them in the query.
        """
        return self._reader.table(query, max_bytes=max_bytes, timeout_s=timeout_s, on_start=on_start)

    def back_up(self, new: Path, tell: Progress | None = None) -> int:
        """Copy everything that is committed now to `new`, which must not exist; returns the number of rows.

        `tell` hears how many of how many rows are done; what it raises ends the copying. Within `new_file`, which
        translates the errors of DuckDB.
        """
        with self._engine.cursor() as cursor:
            return copy(cursor, new, tell)

    def announce(self, url: str, token_file: str) -> None:
        """Tell those who find the file locked where its owner answers."""
        if self._lock is not None:
            self._lock.announce(url, token_file)

    def stop_writing(self) -> None:
        """Commit what was accepted and take no more; queries are still answered. May be called twice."""
        if self._writer is not None:
            self._writer.close()

    def close(self) -> None:
        """Commit what was accepted, close the file, let others in; may be called twice."""
        self._opened.close()

    def _writable(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"{self.path} was opened for reading only")
        return self._writer

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(path: str | Path | None, *, limits: StoreLimits | None = None, read_only: bool = False) -> Store:
    """Open a database file, made if it does not exist; `None` is a store in memory.

    `read_only` shares the file with other readers and needs it to exist. Raises StoreLocked if another process owns
    it, SchemaError if it is not one of ours or newer than this program; the file is then unchanged.
    """
    resolved = None if path is None else Path(path).expanduser().resolve()
    if resolved is not None:
        if read_only and not resolved.exists():
            raise StoreError(f"{path} does not exist")
        if not resolved.parent.is_dir():
            raise StoreError(f"{path}: the folder {resolved.parent} does not exist")
        if resolved.is_dir():
            raise StoreError(f"{path} is a folder; give the name of a database file in it")
    return Store(resolved, limits or StoreLimits(), read_only=read_only)
