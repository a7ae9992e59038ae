"""One query at work: on a cursor and in a thread of its own, in a READ ONLY transaction, stopped at its deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import duckdb

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import QueryTimeout
from ingero_mcp.reader import OnStart
from ingero_mcp.store.engine import Engine
from ingero_mcp.store.places import Place, Places
from ingero_mcp.store.priority import step_back

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

# The engine looks for an interrupt between pieces of work, and some pieces are long: 2,048 rows of a join on a key
# that all rows share. Who asked is told in time; the place stays taken until the engine has let go.
_GRACE_S: Final = 2.0
_THREAD_NAME: Final = "ingero-query"
_REPEAT_S: Final = 0.05


def is_any_running() -> bool:
    """Whether a query is at work, perhaps in a step that it cannot leave."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


class Running(Generic[_Result]):
    """Runs `work` on a cursor. What it raises comes out of `result`, as does QueryTimeout after `limit_s`."""

    def __init__(
        self, engine: Engine, places: Places, work: Callable[[duckdb.DuckDBPyConnection], _Result], limit_s: float
    ) -> None:
        self.passed = False
        self._engine = engine
        self._places = places
        self._work = work
        self._limit_s = limit_s
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._results: list[_Result] = []
        self._errors: list[BaseException] = []

    def result(self, place: Place, on_start: OnStart | None) -> _Result:
        """Start, wait, and give the result; `place` is given back when the query has ended."""
        thread = threading.Thread(target=self._run, args=(place,), name=_THREAD_NAME, daemon=True)
        try:
            thread.start()
        except BaseException:
            self._places.leave(place)
            raise
        try:
            self._wait(place, on_start)
        except BaseException:  # Ctrl-C, while the query runs elsewhere
            place.interrupt()
            raise
        if not self._ended.is_set():
            place.is_stuck = True
            _log.warning("a query goes on after its %g s: the engine is inside a step it cannot leave", self._limit_s)
            raise QueryTimeout(self._limit_s)
        if self._errors:
            raise self._errors.pop()
        return self._results.pop()

    def _wait(self, place: Place, on_start: OnStart | None) -> None:
        deadline_s = monotonic_s() + self._limit_s
        self._begun.wait(self._limit_s)
        if on_start is not None:
            on_start(place.interrupt)
        if self._ended.wait(max(0.0, deadline_s - monotonic_s())):
            return
        self.passed = True
        for _ in range(int(_GRACE_S / _REPEAT_S)):
            place.interrupt()
            if self._ended.wait(_REPEAT_S):
                return

    def _run(self, place: Place) -> None:
        step_back()
        try:
            with self._engine.cursor() as cursor:
                place.start(cursor)
                self._begun.set()
                try:
                    cursor.execute("BEGIN TRANSACTION READ ONLY")
                    self._results.append(self._work(cursor))
                finally:
                    _end_transaction(cursor)
        except BaseException as error:
            self._errors.append(error)
        finally:
            self._places.leave(place)
            self._ended.set()
            self._begun.set()


def _end_transaction(cursor: duckdb.DuckDBPyConnection) -> None:
    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error:
        # An interrupted or failed transaction may be gone already; the cursor is closed next and never reused.
        return
