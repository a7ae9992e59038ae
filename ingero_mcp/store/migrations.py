"""Files that an older version of this program wrote: brought up to date in one transaction, after a copy.

Opened for reading only, such a file stays as it is, and is seen through tables and views in memory.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from ingero_mcp.errors import DiskFull, StoreError
from ingero_mcp.limits import MIB
from ingero_mcp.store.epochs import Epochs
from ingero_mcp.store.schema import CONTEXT, ROWS, VERSION, create, create_calculated, create_views, version_of
from ingero_mcp.views import PRIVATE

_log = logging.getLogger(__name__)
_BATCH_ROWS: Final = 100_000
_CONFINED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}

Migration = Callable[[duckdb.DuckDBPyConnection], None]


def bring_up_to_date(connection: duckdb.DuckDBPyConnection) -> None:
    """Tables and views as this program defines them: made in an empty database, renewed in one of ours."""
    version = version_of(connection)
    if version is None:
        create(connection)
        return
    try:
        connection.execute("BEGIN")
        for migration in MIGRATIONS[version - 1 :]:
            migration(connection)
        connection.execute(f"UPDATE {PRIVATE}.version SET number = {VERSION}")
        create_views(connection)
        connection.execute("COMMIT")
    except duckdb.Error as error:
        raise StoreError(f"it cannot be brought up to date, and is as it was: {_first_line(error)}") from error


def keep_copy(path: Path, version: int) -> Path:
    """Copy a database that is not open; the copy lies beside it, named after its version.

    Raises DiskFull where there is no room for it, StoreError where it cannot be made.
    """
    copy = path.with_name(f"{path.name}.v{version}")
    needed, free = int(path.stat().st_size * 1.1), shutil.disk_usage(path.parent).free
    if needed > free:
        raise DiskFull(
            f"{path} was written by an older ingero and is copied before it is changed: that needs {needed // MIB} "
            f"MiB, and {free // MIB} MiB are free. Make room, or move the file"
        )
    partial = copy.with_name(f"{copy.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with duckdb.connect(":memory:", config=_CONFINED) as connection:
            # Whatever the views in there would like to read while they are copied.
            connection.execute(f"SET allowed_directories = [{_quoted(path.parent)}]")
            connection.execute("SET enable_external_access = false")
            connection.execute(f"ATTACH {_quoted(path)} AS stored (READ_ONLY)")
            connection.execute(f"ATTACH {_quoted(partial)} AS copy")
            connection.execute("COPY FROM DATABASE stored TO copy")
            connection.execute("DETACH copy")
    except duckdb.Error as error:
        partial.unlink(missing_ok=True)
        raise StoreError(f"{path} has to be copied before it is changed, which failed: {_first_line(error)}") from error
    partial.replace(copy)
    _log.warning("%s was written by an older ingero; it is brought up to date, and %s is as it was", path, copy.name)
    return copy


def look_through(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Show the database at `path` in one in memory, through the views of this program."""
    connection.execute(f"ATTACH {_quoted(path)} AS stored (READ_ONLY)")
    connection.execute(f"CREATE SCHEMA {PRIVATE}")
    for table in (ROWS, CONTEXT):
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM stored.{table}")
    create_calculated(connection)
    create_views(connection)
    count_again(connection)


def _two(connection: duckdb.DuckDBPyConnection) -> None:
    create_calculated(connection)
    count_again(connection)


def count_again(connection: duckdb.DuckDBPyConnection) -> None:
    """Find the epochs in all events, as if they arrived now."""
    epochs = Epochs(sys.maxsize, {})
    # On a cursor of its own, so that it can be read while the other one writes.
    with connection.cursor() as reader:
        calls = reader.sql(f"SELECT * FROM {ROWS} WHERE coll_seq IS NOT NULL").to_arrow_reader(_BATCH_ROWS)
        for batch in calls:
            epochs.note(connection, pa.Table.from_batches([batch]))


def _first_line(error: duckdb.Error) -> str:
    return str(error).splitlines()[0]


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


MIGRATIONS: Final[tuple[Migration, ...]] = (_two,)
"""The first one makes version 2 of version 1, and so on."""
