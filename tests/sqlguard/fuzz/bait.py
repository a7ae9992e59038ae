"""The bait: a store's database with private things in it, a file, a folder to write to; all hold a marker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from ingero_mcp.store import schema
from ingero_mcp.views import PRIVATE as SCHEMA

PRIVATE = ("a", "b", "c", "k", "t")
"""Private tables with one column x, whose names are also those of common table expressions."""

DATABASE = "events.duckdb"
FILE = "bait.csv"
OUT = "out"
VARIABLE = "INGERO_BAIT"
"""The environment variable that holds the marker; a process shows its environment as a file, too."""

OF_TYPE = "-type"
"""What stands behind the marker in the label of the private type."""

_EVENTS = """
    SELECT 'c0' AS cluster_id, 'n' || i % 3 AS node_id, i AS event_seq, (i % 8)::INTEGER AS rank, i // 8 AS coll_seq,
           1700000000000000000 + i * 1000000 AS timestamp_ns, (i * 7919) % 1000 AS duration_ns,
           i / 10.0 AS value_double, 'comm' AS comm_id, i * 10 AS bytes, i AS cpu_ns, 2 * i AS blocked_ns,
           ['ncclAllReduce', 'cudaLaunchKernel'][1 + i % 2] AS metric_name, 'ok' AS status,
           '{"a":"gemm_12","n":' || i || '}' AS attrs_json
    FROM range(40) AS r(i)
"""


@dataclass(frozen=True, slots=True)
class Bait:
    """Where it lies: `folder` is where statements run, so that they can name `FILE` and `OUT` as they are.

    The databases of `twins` are alike in all that may be read, and differ in what may not: whatever is answered
    differently by the two has told something of the secret, even if it is only a number of rows.
    """

    marker: str
    folder: Path
    twins: tuple[Path, Path]


def lay(folder: Path, marker: str) -> Bait:
    """Make everything; `marker` is in the private tables, in a table's name, in the databases' path and in the file.

    Not in the file name of a database: the engine's messages name the database by it.
    """
    where = folder / "here"
    (where / OUT).mkdir(parents=True)
    (where / FILE).write_text(f"owner,token\nfile,{marker}\n")
    twins = (folder / f"{marker}1" / DATABASE, folder / f"{marker}2" / DATABASE)
    for rows, path in enumerate(twins, 1):
        path.parent.mkdir()
        with duckdb.connect(str(path)) as connection:
            schema.create(connection)
            connection.execute(f"INSERT INTO {schema.ROWS} BY NAME {_EVENTS}")
            keep_private(connection, f"{marker}-{rows}", rows)
            connection.execute(
                f"INSERT INTO {SCHEMA}.batches SELECT ('{marker}' || i)::BLOB, NULL FROM range({rows}) r(i)"
            )
            connection.execute(f'CREATE TABLE "{marker}" AS SELECT 1 AS x')
    return Bait(marker, where, twins)


def keep_private(connection: duckdb.DuckDBPyConnection, marker: str, rows: int = 1) -> None:
    """Tables, a type, macros and a schema that are no reader's business; each holds `marker`."""
    connection.execute(f"CREATE TABLE vault AS SELECT '{marker}' AS owner, '{marker}' AS token FROM range({rows})")
    for name in PRIVATE:
        connection.execute(f"CREATE TABLE {name} AS SELECT '{marker}' AS x FROM range({rows})")
    connection.execute(f"CREATE TYPE mood AS ENUM ('{marker}{OF_TYPE}')")
    connection.execute("CREATE MACRO leak() AS (SELECT token FROM vault LIMIT 1)")
    connection.execute("CREATE SCHEMA owned; CREATE MACRO owned.tables() AS TABLE FROM vault")
