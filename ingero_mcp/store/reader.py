"""The read path: a checked query on its own cursor, in a READ ONLY transaction, bounded in time, rows and bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import QueryError, QueryTimeout, StoreBusy
from ingero_mcp.events import Rows
from ingero_mcp.limits import StoreLimits
from ingero_mcp.reader import OnStart
from ingero_mcp.sqlguard import CheckedQuery, check
from ingero_mcp.store.engine import Engine
from ingero_mcp.store.fetching import collect, fetch


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
        with self._running(query, timeout_s, on_start) as (cursor, sql):
            return fetch(cursor, sql, limit, self._limits.result_bytes)

    def table(
        self, query: CheckedQuery, *, max_bytes: int, timeout_s: float | None = None, on_start: OnStart | None = None
    ) -> pa.Table:
        """All rows; raises as `query`, and QueryError when they would need more than `max_bytes`."""
        with self._running(query, timeout_s, on_start) as (cursor, sql):
            return collect(cursor, sql, max_bytes)

    @contextmanager
    def _running(
        self, query: CheckedQuery, timeout_s: float | None, on_start: OnStart | None
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """A cursor in a READ ONLY transaction, stopped at the deadline, and what may run on it."""
        # Checked again here, by the same function: what reaches the engine has passed the guard, whoever calls.
        sql = check(query.text).sql
        limit_s = min(timeout_s or self._limits.query_timeout_s, self._limits.query_timeout_s * 20)
        with self._place(), self._engine.cursor() as cursor:
            deadline = _Deadline(cursor, limit_s)
            if on_start is not None:
                on_start(cursor.interrupt)
            try:
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                yield cursor, sql
            except duckdb.Error as error:
                if self._engine.report(error):
                    raise StoreBusy("the database is being reopened; try again in a few seconds") from error
                if deadline.passed or "max_execution_time" in str(error):
                    raise QueryTimeout(limit_s) from None
                raise _explain(error) from error
            finally:
                deadline.cancel()
                _end_transaction(cursor)

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
    if message.startswith("Out of Memory Error"):
        return QueryError(
            "the query needs more memory than queries may use; aggregate earlier, select fewer columns, or filter "
            f"by time ({message.splitlines()[0]})"
        )
    if message.startswith("INTERRUPT Error"):
        return QueryError("the query was cancelled")
    return QueryError(message)
