"""What is inside the database file: the private tables, the public views, and the version of both."""

from __future__ import annotations

from typing import Final

import duckdb

from ingero_mcp.errors import SchemaError
from ingero_mcp.events import COMPUTED, STORED
from ingero_mcp.views import PRIVATE, PRIVATE_VIEWS, VIEWS
from ingero_mcp.views.clocks import CLOCK_SPANS

VERSION: Final = 2
ROWS: Final = f"{PRIVATE}.event_rows"
CONTEXT: Final = f"{PRIVATE}.context_rows"
"""What a node knew besides its events, in the same columns: stored chains, stacks, sessions, snapshots, aggregates.
Views show it; `events` does not, so that counting events counts events."""
BATCHES: Final = f"{PRIVATE}.batches"
NODE_CLOCKS: Final = f"{PRIVATE}.node_clocks"
EPOCHS: Final = f"{PRIVATE}.epochs"
"""Where on a rank a communicator was begun anew, and where its sequence numbers count from an arbitrary moment. What
has no row here is epoch 0, counted from the beginning."""


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Make an empty database ours, in one transaction."""
    columns = ", ".join(f"{column.name} {column.type}" for column in STORED)
    connection.execute("BEGIN")
    connection.execute(f"CREATE SCHEMA {PRIVATE}")
    connection.execute(f"CREATE TABLE {PRIVATE}.version (number INTEGER)")
    connection.execute(f"INSERT INTO {PRIVATE}.version VALUES ({VERSION})")
    connection.execute(f"CREATE TABLE {ROWS} ({columns})")
    connection.execute(f"CREATE TABLE {CONTEXT} ({columns})")
    # received_ns is NULL for a key that is never forgotten: that of an imported file.
    connection.execute(f"CREATE TABLE {BATCHES} (key BLOB PRIMARY KEY, received_ns BIGINT)")
    create_calculated(connection)
    create_views(connection)
    connection.execute("COMMIT")


def create_calculated(connection: duckdb.DuckDBPyConnection) -> None:
    """The tables that version 2 added: what was worked out from events, and from asking other servers."""
    connection.execute(
        f"CREATE TABLE {NODE_CLOCKS} (cluster_id VARCHAR, node_id VARCHAR, rank INTEGER, at_ns BIGINT, "
        "offset_ns BIGINT, bound_ns BIGINT, method VARCHAR, reference VARCHAR)"
    )
    connection.execute(
        f"CREATE TABLE {CLOCK_SPANS} (cluster_id VARCHAR, node_id VARCHAR, rank INTEGER, at_ns BIGINT, bucket BIGINT, "
        "from_ns BIGINT, to_ns BIGINT, offset_ns BIGINT, bound_ns BIGINT)"
    )
    connection.execute(
        f"CREATE TABLE {EPOCHS} (cluster_id VARCHAR, job_id VARCHAR, comm_id VARCHAR, rank INTEGER, "
        "timing_source VARCHAR, from_ns BIGINT, to_ns BIGINT, epoch INTEGER, attached BOOLEAN)"
    )


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """`events` over the private storage, then the views over `events`."""
    stored = ", ".join(column.name for column in STORED)
    computed = ", ".join(f"{column.computed} AS {column.name}" for column in COMPUTED)
    connection.execute(f"CREATE OR REPLACE VIEW main.events AS SELECT {stored}, {computed} FROM {ROWS}")
    connection.execute(f"CREATE OR REPLACE VIEW {PRIVATE}.context AS SELECT {stored}, {computed} FROM {CONTEXT}")
    for name, sql in PRIVATE_VIEWS:
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")
    for view in VIEWS:
        connection.execute(f"CREATE OR REPLACE VIEW main.{view.name} AS {view.sql}")


def version_of(connection: duckdb.DuckDBPyConnection) -> int | None:
    """The schema version of an open database: None if it is empty, SchemaError if it is not one of ours."""
    names = connection.execute(
        "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE NOT internal"
    ).fetchall()
    tables = {name for (name,) in names}
    if f"{PRIVATE}.version" in tables:
        row = connection.execute(f"SELECT number FROM {PRIVATE}.version").fetchone()
        return int(row[0]) if row else 0
    if tables:
        raise SchemaError(
            f"a DuckDB database, but not one of ours (it holds {', '.join(sorted(tables)[:5])}); "
            "give a file that ingero wrote, or a new name"
        )
    return None


def require_known(version: int | None) -> None:
    """SchemaError unless this program knows databases of that version."""
    if version is not None and version < 1:
        raise SchemaError("it does not say by which version of ingero it was written; give another file")
    if version is not None and version > VERSION:
        raise SchemaError(
            f"written by a newer ingero (schema {version}, this program knows {VERSION}); "
            "upgrade ingero, or use another file. Nothing was changed"
        )
