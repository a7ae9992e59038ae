"""The read path: a checked query in its place among others, bounded in time, rows, cells and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import duckdb
import pyarrow as pa

from ingero_mcp.errors import QueryError, QueryTimeout, StoreBusy
from ingero_mcp.events import Rows
from ingero_mcp.limits import StoreLimits
from ingero_mcp.reader import OnStart
from ingero_mcp.sqlguard import CheckedQuery, check
from ingero_mcp.store.engine import Engine
from ingero_mcp.store.fetching import collect, fetch
from ingero_mcp.store.places import Places
from ingero_mcp.store.running import Running

_Result = TypeVar("_Result")


class Reader:
    """Runs checked queries beside the writer; as many at once as there are places, the rest wait their turn."""

    def __init__(self, engine: Engine, places: Places, limits: StoreLimits) -> None:
        self._engine = engine
        self._places = places
        self._limits = limits

    def query(
        self, query: CheckedQuery, *, limit: int, timeout_s: float | None = None, on_start: OnStart | None = None
    ) -> Rows:
        """At most `limit` rows. Raises QueryTimeout, QueryError, or StoreBusy when no place came free."""
        # Checked again here, by the same function: what reaches the engine has passed the guard, whoever calls.
        sql = check(query.text).sql
        most, cell = self._limits.result_bytes, self._limits.cell_bytes
        return self._run(lambda cursor: fetch(cursor, sql, limit, most, cell), timeout_s, on_start)

    def table(
        self, query: CheckedQuery, *, max_bytes: int, timeout_s: float | None = None, on_start: OnStart | None = None
    ) -> pa.Table:
        """All rows; raises as `query`, and QueryError when they would need more than `max_bytes`."""
        sql = check(query.text).sql
        return self._run(lambda cursor: collect(cursor, sql, max_bytes), timeout_s, on_start)

    def _run(
        self, work: Callable[[duckdb.DuckDBPyConnection], _Result], timeout_s: float | None, on_start: OnStart | None
    ) -> _Result:
        limit_s = min(timeout_s or self._limits.query_timeout_s, self._limits.query_timeout_s * 20)
        place = self._places.take()
        running = Running(self._engine, self._places, work, limit_s)
        try:
            return running.result(place, on_start)
        except duckdb.Error as error:
            if self._engine.report(error):
                raise StoreBusy("the database is being reopened; try again in a few seconds") from error
            if place.evicted:
                raise QueryError(
                    "the query was stopped, because storing new events needed the memory it held; aggregate earlier, "
                    "select fewer columns, or filter by time"
                ) from error
            if running.passed or "max_execution_time" in str(error):
                raise QueryTimeout(limit_s) from None
            raise _explain(error) from error
        except MemoryError as error:
            raise _explain(duckdb.OutOfMemoryException("Out of Memory Error: no memory for the result")) from error


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
