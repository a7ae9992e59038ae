"""A bait database as the store opens and asks it, with the engine's own layers in place or left out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from ingero_mcp.errors import QueryTimeout, StoreError
from ingero_mcp.limits import MIB, StoreLimits
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from tests.sqlguard.fuzz.layers import ALL, Layer, Layers
from tests.sqlguard.fuzz.weaken import what_runs

TIME_LIMIT_S = 0.5
_ROWS = 50
_LIMITS = StoreLimits(memory_bytes=256 * MIB, threads=1, temp_bytes=64 * MIB, result_bytes=MIB)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as text; `faults` is what the statement did to its transaction."""

    shown: str
    failed: bool = False
    timed_out: bool = False
    faults: tuple[str, ...] = ()


class World:
    """One of the twins, open. `ask` takes the text that somebody wrote; with every layer it goes the store's way."""

    def __init__(self, path: Path, on: Layers) -> None:
        self._on = on
        self._store = open_store(path, limits=_LIMITS) if Layer.LOCKED in on else None
        if self._store is not None:
            self._store.stop_writing()  # what is changed from here on was changed by a statement
        self._connection = None if self._store else duckdb.connect(str(path), config=_UNLOCKED)

    def ask(self, sql: str) -> Answer | None:
        """The answer, or None where the guard refuses."""
        runs = what_runs(sql, self._on)
        if runs is None:
            return None
        if self._on == ALL and self._store is not None:
            return self._ask_store(self._store, sql)
        return self._ask_engine(runs)

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor of its own on the same database, past the guard: for weaker layers, and to look what was done."""
        if self._store is not None:
            with self._store._engine.cursor() as cursor:
                yield cursor
        elif self._connection is not None:
            with self._connection.cursor() as cursor:
                yield cursor

    @staticmethod
    def _ask_store(store: Store, sql: str) -> Answer:
        try:
            rows = store.query(check(sql), limit=_ROWS, timeout_s=TIME_LIMIT_S)
        except StoreError as error:
            return Answer(str(error), True, isinstance(error, QueryTimeout))
        return Answer(_shown(rows.columns, rows.types, rows.rows))

    def _ask_engine(self, sql: str) -> Answer:
        with self.cursor() as cursor:
            timer = threading.Timer(TIME_LIMIT_S, cursor.interrupt)
            timer.start()
            try:
                if Layer.READ_ONLY in self._on:
                    cursor.execute("BEGIN TRANSACTION READ ONLY")
                cursor.execute(sql)
                described = cursor.description or []
                rows = cursor.fetchmany(_ROWS)
                answer = _shown([column[0] for column in described], [column[1] for column in described], rows)
                failed = False
            except Exception as error:  # whatever it is, its text is shown to whoever asked
                answer, failed = str(error), True
            finally:
                timer.cancel()
                timer.join()
            is_late = failed and answer.startswith("INTERRUPT")
            return Answer(answer, failed, is_late, () if failed else self._faults(cursor))

    def _faults(self, cursor: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
        is_open = _rolls_back(cursor)
        if is_open == (Layer.READ_ONLY in self._on):
            return ()
        return ("left a transaction open",) if is_open else ("ended its transaction",)


_UNLOCKED: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": f"{_LIMITS.memory_bytes}B",
    # Left out is the lock, not the bait's fence: what would reach for the network stays off.
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
}


def _shown(columns: object, types: object, rows: list[tuple[object, ...]]) -> str:
    return f"{list(map(str, columns))} {list(map(str, types))} {sorted(map(repr, rows))}"  # type: ignore[call-overload]


def _rolls_back(cursor: duckdb.DuckDBPyConnection) -> bool:
    try:
        cursor.execute("ROLLBACK")
    except duckdb.Error:
        return False
    return True
