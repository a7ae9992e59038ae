"""A database that looks like the store's to a reader, with things beside it that no reader may see."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from ingero_mcp.events import COLUMNS
from ingero_mcp.views import relations
from tests.sqlguard.fuzz.bait import keep_private

MARK = "NOT-FOR-READERS"
"""What every private thing in the database holds."""

_NODES = "SELECT 'c0' AS cluster_id, 'n0' AS node_id, 4 AS events, 2 AS ranks, 1 AS first_ns, 9 AS last_ns"
_CLUSTERS = "SELECT 'c0' AS cluster_id, 2 AS nodes, 8 AS events, 1 AS first_ns, 9 AS last_ns"


@pytest.fixture(scope="session")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": "1"}) as connection:
        columns = ", ".join(f"{column.name} {column.type}" for column in COLUMNS)
        connection.execute(f"CREATE TABLE events ({columns})")
        connection.execute(
            """
            INSERT INTO events BY NAME
            SELECT 'c0' AS cluster_id, 'n' || i % 3 AS node_id, i AS event_seq, i % 8 AS rank, i // 8 AS coll_seq,
                   1700000000000000000 + i * 1000000 AS timestamp_ns, (i * 7919) % 1000 AS duration_ns,
                   i / 10.0 AS value_double, 'comm' AS comm_id, i * 10 AS bytes, i AS cpu_ns, 2 * i AS blocked_ns,
                   ['ncclAllReduce', 'cudaLaunchKernel'][1 + i % 2] AS metric_name, 'ok' AS status,
                   '{"a":"gemm_12","n":' || i || '}' AS attrs_json, 'n' || i % 3 || ':' || i AS id
            FROM range(40) AS r(i)
            """
        )
        connection.execute(f"CREATE VIEW nodes AS {_NODES}; CREATE VIEW clusters AS {_CLUSTERS}")
        for name in relations().keys() - {"events", "nodes", "clusters"}:
            listed = ", ".join(f"NULL::BIGINT AS {column}" for column in relations()[name])
            connection.execute(f"CREATE VIEW {name} AS SELECT {listed}")
        keep_private(connection, MARK)
        yield connection
