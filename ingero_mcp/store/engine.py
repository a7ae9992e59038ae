"""The one DuckDB instance of a store: how it is locked down, how cursors come and go, how it is reopened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import IngeroError, SchemaError, StoreBusy, StoreError
from ingero_mcp.limits import StoreLimits
from ingero_mcp.store import migrations, schema
from ingero_mcp.store.priority import stepped_back

Config = dict[str, str | bool | int | float | list[str]]

_log = logging.getLogger(__name__)
_HARDENED: Final[Config] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "python_enable_replacements": False,
    "max_expression_depth": 250,
    # The writer says when: a checkpoint that runs out of memory makes the whole instance unusable.
    "checkpoint_threshold": "1TB",
    "lock_configuration": True,
}
# What attaches a file first is locked down after that.
_LAST: Final = ("enable_external_access", "lock_configuration")
# Pages of the file are only kept while nobody else wants the room.
_HELD_BY_QUERIES: Final = """
    SELECT coalesce(sum(memory_usage_bytes) FILTER (tag NOT IN ('BASE_TABLE', 'METADATA')), 0),
           coalesce(sum(temporary_storage_bytes), 0)
    FROM duckdb_memory()
"""
# Statements of the store itself (a checkpoint, a migration) may take longer than a query, but not for ever.
_BACKSTOP_MS: Final = 600_000
_DRAIN_S: Final = 5.0
_REOPEN_EVERY_S: Final = 1.0
# DuckDB would look for its SQLite extension, and say so.
_SQLITE_MAGIC: Final = b"SQLite format 3\0"


class Engine:
    """Owns the only `connect`; everybody else takes cursors (a second connect would need the same configuration).

    After a fatal error every statement on the instance fails; the next cursor then opens the file again.
    """

    def __init__(self, path: Path | None, limits: StoreLimits, *, read_only: bool) -> None:
        self._path = path
        self._limits = limits
        self._read_only = read_only
        self._changed = threading.Condition()
        self._cursors: set[duckdb.DuckDBPyConnection] = set()
        self._broken: str = ""
        self._reopening = False
        self._reopen_at_s = 0.0
        self._closed = False
        # The engine's own threads inherit the priority: they work for queries, the writer has a thread of its own.
        self._connection: duckdb.DuckDBPyConnection | None = stepped_back(self._connect)

    @property
    def broken(self) -> str:
        """What made the instance unusable; "" while it works."""
        return self._broken

    def report(self, error: duckdb.Error) -> bool:
        """Tell of an error; says whether it made the instance unusable."""
        if not isinstance(error, duckdb.FatalException) and "has been invalidated" not in str(error):
            return False
        with self._changed:
            self._broken = self._broken or str(error).splitlines()[0]
        return True

    def share_held_by_queries(self) -> float:
        """How much of the memory, or of the space to spill, queries hold: 0 to 1, and 1 when there is none to ask."""
        try:
            with self.cursor() as cursor:
                row = cursor.execute(_HELD_BY_QUERIES).fetchone()
        except (duckdb.Error, StoreBusy) as error:
            _log.debug("memory: %s", error)
            return 1.0
        held_bytes, spilled_bytes = row or (0, 0)
        return float(max(held_bytes / self._limits.memory_bytes, spilled_bytes / self._limits.temp_bytes))

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor of its own, closed at the end; StoreBusy while the database cannot be opened again."""
        with self._changed:
            self._mend()
            if self._connection is None:
                raise StoreBusy("the database is closed or being reopened; try again in a few seconds")
            cursor = self._connection.cursor()
            self._cursors.add(cursor)
        try:
            yield cursor
        finally:
            with self._changed:
                self._cursors.discard(cursor)
                cursor.close()
                self._changed.notify_all()

    def close(self) -> None:
        """Interrupt and wait for the cursors, then close; may be called twice."""
        with self._changed:
            self._closed = True
            self._disconnect()

    def _mend(self) -> None:
        """Open the file again if the instance broke; one thread does it, at most once a second."""
        if not self._broken or self._closed or self._reopening or monotonic_s() < self._reopen_at_s:
            return
        self._reopening = True
        try:
            self._disconnect()
            self._connection = stepped_back(self._connect)
            _log.warning("the database was reopened after: %s", self._broken)
            self._broken = ""
        except (IngeroError, duckdb.Error, OSError) as error:
            _log.error("the database cannot be reopened: %s", error)
        finally:
            self._reopen_at_s = monotonic_s() + _REOPEN_EVERY_S
            self._reopening = False

    def _disconnect(self) -> None:
        # Every cursor must be gone first: as long as one lives, `connect` returns the same dead instance.
        connection, self._connection = self._connection, None
        deadline = monotonic_s() + _DRAIN_S
        while self._cursors and monotonic_s() < deadline:
            for cursor in self._cursors:
                cursor.interrupt()
            self._changed.wait(0.05)
        try:
            if connection is not None:
                connection.close()
        except duckdb.ResourceInUseException as error:
            # A query is inside a step that it cannot leave. What was acknowledged is in the log already.
            _log.warning("the database is left open until a query has ended: %s", error)

    def _connect(self) -> duckdb.DuckDBPyConnection:
        # In this order: the hardening ends with locking the configuration.
        config: Config = {
            "memory_limit": f"{self._limits.memory_bytes}B",
            "threads": self._limits.threads,
            "max_execution_time": _BACKSTOP_MS,
            "temp_directory": "" if self._path is None or self._read_only else f"{self._path}.tmp",
            "max_temp_directory_size": f"{self._limits.temp_bytes}B",
            **_HARDENED,
        }
        if self._path is None:
            connection = duckdb.connect(":memory:", config=config)
            schema.create(connection)
            return connection
        version: int | None = schema.VERSION
        if self._path.exists():
            # A look first, changing nothing: what is not ours stays byte for byte as it is.
            version = inspect(self._path, config, must_hold_events=self._read_only)
        elif self._read_only:
            raise StoreError(f"{self._path} does not exist")
        is_older = version is not None and version < schema.VERSION
        if self._read_only:
            return _open_older(self._path, config) if is_older else _open(self._path, config, read_only=True)
        if version is not None and is_older:
            migrations.keep_copy(self._path, version)
        connection = _open(self._path, config, read_only=False)
        try:
            migrations.bring_up_to_date(connection)
        except StoreError as error:
            connection.close()
            raise StoreError(f"{self._path}: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection


def inspect(path: Path, config: Config, *, must_hold_events: bool) -> int | None:
    """Which version of this program wrote a database; None for an empty one. StoreError or SchemaError if none did."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    if magic == _SQLITE_MAGIC:
        raise SchemaError(f"{path} is a SQLite database; give a file that ingero wrote, or a new name")
    with _open(path, config, read_only=True) as connection:
        try:
            version = schema.version_of(connection)
            schema.require_known(version)
        except SchemaError as error:
            raise SchemaError(f"{path}: {error}") from None
        except duckdb.Error as error:
            raise explain(path, str(error)) from error
    if version is None and must_hold_events:
        raise SchemaError(f"{path}: an empty DuckDB database; nothing was ever stored in it")
    return version


def _open(path: Path, config: Config, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(str(path), read_only=read_only, config=config)
    except duckdb.Error as error:
        raise explain(path, str(error)) from error


def _open_older(path: Path, config: Config) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={name: config[name] for name in config if name not in _LAST})
    try:
        migrations.look_through(connection, path)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def explain(path: Path, message: str) -> StoreError | SchemaError:
    """What DuckDB's message about a file means: one sentence for each kind of file that DuckDB will not open."""
    first = message.splitlines()[0]
    if "Could not set lock" in message or "Conflicting lock" in message:
        return StoreError(f"{path} is open in another program; close it there first")
    if "not a valid DuckDB database" in message:
        return SchemaError(f"{path} is not a DuckDB database; give a file that ingero wrote, or a new name")
    if "version number" in message:
        return SchemaError(f"{path} was written by another version of DuckDB: {first}")
    if "ncrypt" in message:
        return SchemaError(f"{path} is encrypted; ingero cannot open encrypted databases")
    if "WAL" in message:
        return SchemaError(
            f"{path}: its write-ahead log {path}.wal is damaged ({first}); to go on without the rows that are only in "
            "there, move that file aside"
        )
    return SchemaError(f"{path} cannot be opened: {first}")
