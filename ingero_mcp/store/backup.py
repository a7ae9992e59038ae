"""A copy of an open database: everything that was committed at one moment, in a file that is whole by itself.

The owner makes it, through Arrow into a second instance: no other process can open the file, and copying its bytes
would lose what is in the log, and DuckDB's lock with it. Writers and readers go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import disk_usage
from typing import Final

import duckdb

from ingero_mcp.errors import DiskFull
from ingero_mcp.limits import MIB
from ingero_mcp.store.schema import BATCHES, CONTEXT, EPOCHS, NODE_CLOCKS, ROWS, create
from ingero_mcp.store.transaction import roll_back
from ingero_mcp.views.clocks import CLOCK_SPANS

_TABLES: Final = (ROWS, CONTEXT, BATCHES, NODE_CLOCKS, CLOCK_SPANS, EPOCHS)
_BATCH_ROWS: Final = 50_000
_MEMORY: Final = "1GB"  # what it may use at most: the keys of batches have an index

Progress = Callable[[int, int], None]
"""Told how many rows of how many have been copied."""


def copy(cursor: duckdb.DuckDBPyConnection, new: Path, tell: Progress | None = None) -> int:
    """Copy what `cursor` sees to `new`, which must not exist; returns the number of rows.

    Raises duckdb.Error and OSError; `store.new_file` translates them.
    """
    cursor.execute("BEGIN TRANSACTION READ ONLY")
    try:
        tables = {table: _stored(cursor, table) for table in _TABLES}
        counts = [cursor.execute(f"SELECT count(*) FROM {name}").fetchall() for name in tables.values() if name]
        whole = sum(int(count) for [[count]] in counts)
        with duckdb.connect(str(new), config={"memory_limit": _MEMORY, "threads": 1}) as copied:
            create(copied)
            done = 0
            for table, name in tables.items():
                if not name:
                    continue
                with cursor.sql(f"SELECT * FROM {name}").to_arrow_reader(_BATCH_ROWS) as batches:
                    for batch in batches:
                        copied.register("incoming", batch)
                        copied.execute(f"INSERT INTO {table} SELECT * FROM incoming")
                        copied.unregister("incoming")
                        done += batch.num_rows
                        if tell is not None:
                            tell(done, whole)
            # Closing does it too, but says nothing if it fails.
            copied.execute("CHECKPOINT")
        return done
    finally:
        roll_back(cursor)


def require_room(database: Path, folder: Path) -> None:
    """DiskFull if a copy of the database in `folder` would leave less free than it takes itself."""
    files = (database, database.with_name(f"{database.name}.wal"))
    size, free = sum(file.stat().st_size for file in files if file.exists()), disk_usage(folder).free
    if free < 2 * size:
        raise DiskFull(f"a copy needs up to {size // MIB} MiB, and only {free // MIB} MiB are free in {folder}")


def _stored(cursor: duckdb.DuckDBPyConnection, table: str) -> str:
    """Where the rows of a private table are: in the file itself, if an older one is looked through; "" if nowhere."""
    schema, _, name = table.partition(".")
    rows = cursor.execute(
        "SELECT database_name FROM duckdb_tables() WHERE schema_name = $1 AND table_name = $2 "
        "ORDER BY database_name = 'stored'",
        [schema, name],
    ).fetchall()
    return f'"{rows[0][0].replace(chr(34), chr(34) * 2)}".{table}' if rows else ""
