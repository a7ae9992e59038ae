"""The read path: a checked query on its own cursor, in a READ ONLY transaction, bounded in time, rows and bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import QueryError, QueryTimeout, StoreBusy
from ingero_mcp.events import Rows
from ingero_mcp.limits import StoreLimits
from ingero_mcp.sqlguard import CheckedQuery, check
from ingero_mcp.store.engine import Engine

_FIRST_CHUNK: Final = 16
_LARGEST_CHUNK: Final = 1000
_FIXED_BYTES: Final = 8
OnStart = Callable[[Callable[[], None]], None]
"""Told, just before the engine starts, a function that interrupts it: for callers that may be cancelled."""


class Reader:
    """Runs checked queries beside the writer; as many at once as the limits allow, the rest wait their turn."""

    def __init__(self, engine: Engine, limits: StoreLimits) -> None:
        self._engine = engine
        self._limits = limits
        self._places = threading.BoundedSemaphore(limits.concurrent_queries)

    def query(
        self, query: CheckedQuery, *, limit: int, timeout_s: float | None = None, on_start: OnStart | None = None
    ) -> Rows:
        """At most `limit` rows. Raises QueryTimeout, QueryError, or StoreBusy when no place came free."""
        # Checked again here, by the same function: what reaches the engine has passed the guard, whoever calls.
        sql = check(query.text).sql
        limit_s = min(timeout_s or self._limits.query_timeout_s, self._limits.query_timeout_s * 20)
        with self._place(), self._engine.cursor() as cursor:
            deadline = _Deadline(cursor, limit_s)
            if on_start is not None:
                on_start(cursor.interrupt)
            try:
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                cursor.execute(sql)
                return self._fetch(cursor, limit)
            except duckdb.Error as error:
                if self._engine.report(error):
                    raise StoreBusy("the database is being reopened; try again in a few seconds") from error
                if deadline.passed or "max_execution_time" in str(error):
                    raise QueryTimeout(limit_s) from None
                raise _explain(error) from error
            finally:
                deadline.cancel()
                _end_transaction(cursor)

    def _fetch(self, cursor: duckdb.DuckDBPyConnection, limit: int) -> Rows:
        described = cursor.description or []
        columns = tuple(str(column[0]) for column in described)
        types = tuple(str(column[1]) for column in described)
        rows: list[tuple[object, ...]] = []
        size = 0
        chunk_rows = _FIRST_CHUNK
        while chunk := cursor.fetchmany(min(chunk_rows, limit + 1 - len(rows))):
            for row in chunk:
                size += sum(map(_bytes, row))
                if len(rows) == limit:
                    return Rows(columns, types, rows, True, "rows")
                if size > self._limits.result_bytes:
                    return Rows(columns, types, rows, True, "bytes")
                rows.append(row)
            # Only as many at a time as will fit, going by those seen: one row may be very large.
            left = self._limits.result_bytes - size
            chunk_rows = max(1, min(_LARGEST_CHUNK, left * len(rows) // max(size, 1)))
        return Rows(columns, types, rows)

    @contextmanager
    def _place(self) -> Iterator[None]:
        asked_s = monotonic_s()
        if not self._places.acquire(timeout=self._limits.wait_s):
            raise StoreBusy(
                f"{self._limits.concurrent_queries} queries are running and none ended within "
                f"{monotonic_s() - asked_s:.0f} s; this one did not start. Ask again, or fewer at a time"
            )
        try:
            yield
        finally:
            self._places.release()


def _bytes(cell: object) -> int:
    """About how much the cell adds to an answer, whatever is nested in it."""
    if isinstance(cell, str | bytes):
        return len(cell)
    if isinstance(cell, list | tuple):
        return _FIXED_BYTES + sum(map(_bytes, cell))
    if isinstance(cell, dict):
        return _FIXED_BYTES + sum(_bytes(key) + _bytes(value) for key, value in cell.items())
    return _FIXED_BYTES


class _Deadline:
    """Interrupts the cursor after `limit_s` seconds unless cancelled first."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, limit_s: float) -> None:
        self.passed = False
        self._cursor = cursor
        self._timer = threading.Timer(limit_s, self._interrupt)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()
        self._timer.join()

    def _interrupt(self) -> None:
        self.passed = True
        self._cursor.interrupt()


def _end_transaction(cursor: duckdb.DuckDBPyConnection) -> None:
    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error:
        # An interrupted or failed transaction may be gone already; the cursor is closed next and never reused.
        return


def _explain(error: duckdb.Error) -> QueryError:
    message = str(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryError(
            "the query needs more memory than queries may use; aggregate earlier, select fewer columns, or filter "
            f"by time ({message.splitlines()[0]})"
        )
    if isinstance(error, duckdb.InterruptException):
        return QueryError("the query was cancelled")
    return QueryError(message)
