"""The DuckDB instance in which a merge is made: the new database, the sources beside it, and tables for the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from ingero_mcp.events import STORED
from ingero_mcp.limits import StoreLimits
from ingero_mcp.store import schema
from ingero_mcp.store.engine import Config, explain, inspect

WORK: Final = "work.main"
EVENTS: Final = "temp.main.source_events"
CONTEXT: Final = "temp.main.source_context"
"""Rows of all sources as they are there, with the number of their `part` in front."""

COLUMNS: Final = tuple(column.name for column in STORED)
CONTENT: Final = tuple(name for name in COLUMNS if name != "event_seq")
"""What a row says; its number says nothing."""

_CONFINED: Final[Config] = {
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "python_enable_replacements": False,
    "checkpoint_threshold": "1TB",
}
_READ: Final = {EVENTS: f"{WORK}.read_events", CONTEXT: f"{WORK}.read_context"}


class Scratch:
    """An open instance whose main database is the new one; what it needs besides lies in `folder`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, databases: Sequence[Path]) -> None:
        self.connection = connection
        self.databases = tuple(databases)

    def stage(self, source: int, batch: pa.RecordBatch, *, context: bool) -> None:
        """Take in rows of a source that is not a database of ours."""
        self.connection.register("incoming", batch)
        table = _READ[CONTEXT if context else EVENTS]
        self.connection.execute(f"INSERT INTO {table} SELECT {source}, * FROM incoming")
        self.connection.unregister("incoming")

    def table_of(self, database: int, table: str) -> str:
        """One of the private tables of a source that is a database; "" where that has none, being older."""
        name = f"s{database}.{table}"
        found = self.one(
            "SELECT count(*) FROM duckdb_tables() WHERE database_name || '.' || schema_name || '.' || table_name = $1",
            name,
        )
        return name if found else ""

    def one(self, sql: str, *values: object) -> int:
        """The one number that a statement gives."""
        row = self.connection.execute(sql, list(values)).fetchone()
        return int(row[0]) if row and row[0] is not None else 0


@contextmanager
def opened(new: Path, databases: Sequence[Path], limits: StoreLimits) -> Iterator[Scratch]:
    """Make the new database and open the sources that are `databases`.

    Nothing outside can be reached from what lies in them. Raises StoreError or SchemaError for one that cannot be read.
    """
    config: Config = _CONFINED | {
        "memory_limit": f"{limits.memory_bytes}B",
        "threads": limits.threads,
        "temp_directory": str(new.parent / "spilled"),
    }
    for path in databases:
        inspect(path, config | {"enable_external_access": False}, must_hold_events=True)
    connection = duckdb.connect(str(new), config=config)
    try:
        # It would be printed on stdout, among the answer.
        connection.execute("SET enable_progress_bar = false")
        schema.create(connection)
        connection.execute(f"ATTACH {_quoted(new.parent / 'work')} AS work")
        for number, path in enumerate(databases):
            try:
                connection.execute(f"ATTACH {_quoted(path)} AS s{number} (READ_ONLY)")
            except duckdb.Error as error:
                raise explain(path, str(error)) from error
        connection.execute(f"SET allowed_directories = [{_quoted(new.parent)}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        scratch = Scratch(connection, databases)
        _show_together(scratch)
        yield scratch
        connection.execute("CHECKPOINT")
    finally:
        connection.close()


def _show_together(scratch: Scratch) -> None:
    columns = ", ".join(f"{column.name} {column.type}" for column in STORED)
    for view, table in ((EVENTS, schema.ROWS), (CONTEXT, schema.CONTEXT)):
        scratch.connection.execute(f"CREATE TABLE {_READ[view]} (part INTEGER, {columns})")
        # A table, or it is not ours: a view in there could read what it likes.
        tables = {number: scratch.table_of(number, table) for number in range(len(scratch.databases))}
        rows = [f"SELECT part, {', '.join(COLUMNS)} FROM {_READ[view]}"]
        rows += [
            f"SELECT {number} AS part, {', '.join(COLUMNS)} FROM {name}" for number, name in tables.items() if name
        ]
        scratch.connection.execute(f"CREATE TEMP VIEW {view.rpartition('.')[2]} AS {' UNION ALL '.join(rows)}")


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
