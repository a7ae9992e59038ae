"""Files of version 1: what is in them is kept, copied first, and looks as if it had arrived today."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from ingero_mcp.errors import DiskFull, SchemaError, StoreError
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, migrations, open_store
from ingero_mcp.store.schema import VERSION
from ingero_mcp.views import VIEWS, relations
from tests.views.rows import S, ask, call, put, rows

COLUMNS = """
    cluster_id VARCHAR, node_id VARCHAR, job_id VARCHAR, event_seq BIGINT, timestamp_ns BIGINT, duration_ns BIGINT,
    source VARCHAR, metric_name VARCHAR, value_double DOUBLE, value_int BIGINT, rank INTEGER, local_rank INTEGER,
    nranks INTEGER, world_size INTEGER, gpu_uuid VARCHAR, pid BIGINT, tid BIGINT, process VARCHAR, comm_id VARCHAR,
    coll_seq BIGINT, step BIGINT, bytes BIGINT, cpu_ns BIGINT, blocked_ns BIGINT, runq_ns BIGINT, sync_ns BIGINT,
    timing_source VARCHAR, status VARCHAR, causal_chain_id VARCHAR, trace_id VARCHAR, span_id VARCHAR,
    parent_span_id VARCHAR, stack_id VARCHAR, attrs_json VARCHAR
"""
ONE = f"""
    CREATE SCHEMA ingero_private;
    CREATE TABLE ingero_private.version (number INTEGER);
    INSERT INTO ingero_private.version VALUES (1);
    CREATE TABLE ingero_private.event_rows ({COLUMNS});
    CREATE TABLE ingero_private.context_rows ({COLUMNS});
    CREATE TABLE ingero_private.batches (key BLOB PRIMARY KEY, received_ns BIGINT);
    INSERT INTO ingero_private.batches VALUES ('known'::BLOB, NULL);
    CREATE VIEW main.events AS SELECT *, node_id AS node, node_id || ':' || event_seq AS id
        FROM ingero_private.event_rows;
    CREATE VIEW ingero_private.context AS SELECT * FROM ingero_private.context_rows;
    CREATE VIEW main.nodes AS SELECT node_id, count(*) AS events FROM main.events GROUP BY ALL;
    CREATE VIEW main.chains AS SELECT metric_name FROM main.events UNION ALL
        SELECT metric_name FROM ingero_private.context;
"""
RUNS = [call(rank, seq, run * 60 * S + seq * S + rank) for run in range(2) for seq in range(9) for rank in range(2)]
EPOCHS = "SELECT epoch, count(*), max(ranks_seen) FROM collectives GROUP BY ALL ORDER BY ALL"
EXPECTED = [(0, 18, 2), (1, 18, 2)]


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A file as version 1 wrote it, with two runs of a job."""
    path = tmp_path / "it's old.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(ONE)
        connection.register("incoming", rows(RUNS))
        connection.execute("INSERT INTO ingero_private.event_rows SELECT * FROM incoming")
        chain = rows([{"cluster_id": "c", "node_id": "n", "metric_name": "causal_chain", "causal_chain_id": "n:x"}])
        connection.register("incoming", chain)
        connection.execute("INSERT INTO ingero_private.context_rows SELECT * FROM incoming")
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def columns(store: Store, view: str) -> tuple[str, ...]:
    return store.query(check(f"SELECT * FROM {view}"), limit=1).columns


def test_there_is_a_migration_for_every_version() -> None:
    assert len(migrations.MIGRATIONS) == VERSION - 1


def test_an_older_file_is_brought_up_to_date_after_a_copy(one: Path) -> None:
    before = digest(one)
    with open_store(one) as store:
        assert ask(store, EPOCHS) == EXPECTED
        assert ask(store, "SELECT chain_id FROM chains") == [("n:x",)]
        assert store.append(rows(RUNS[:2]), key=b"known", lasting=True).result(timeout=20).duplicate
        put(store, *(call(rank, 0, 120 * S + rank) for rank in range(2)))
        assert ask(store, EPOCHS) == [*EXPECTED, (2, 2, 2)]
    copy = one.with_name(f"{one.name}.v1")
    assert sorted(path.name for path in one.parent.iterdir()) == sorted([one.name, f"{one.name}.lock", copy.name])
    with duckdb.connect(str(copy), read_only=True) as connection:
        assert connection.execute("SELECT number FROM ingero_private.version").fetchall() == [(1,)]
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(len(RUNS),)]
        assert connection.execute("SELECT count(*) FROM ingero_private.batches").fetchall() == [(1,)]
    assert digest(one) != before
    written = copy.stat().st_mtime_ns
    with open_store(one) as store:
        assert len(ask(store, EPOCHS)) == 3
    assert copy.stat().st_mtime_ns == written


def test_an_older_file_answers_everything_without_being_changed(one: Path) -> None:
    before, beside = digest(one), set(one.parent.iterdir())
    with open_store(one, read_only=True) as store, open_store(one, read_only=True) as other:
        for name, expected in relations().items():
            assert columns(store, name) == expected
        assert ask(store, EPOCHS) == ask(other, EPOCHS) == EXPECTED
        assert ask(store, "SELECT chain_id FROM chains") == [("n:x",)]
        assert store.table(check("SELECT rank FROM events"), max_bytes=1 << 20).num_rows == len(RUNS)
        with store._engine.cursor() as cursor:
            for statement in ("SELECT * FROM read_csv('/etc/passwd')", "SET memory_limit = '1GB'", "ATTACH 'x.db'"):
                with pytest.raises(duckdb.Error):
                    cursor.execute(statement)
    assert digest(one) == before
    assert set(one.parent.iterdir()) == beside


def test_a_migration_that_fails_leaves_the_file_as_it_was(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("CREATE TABLE main.half (x INTEGER)")
        raise duckdb.IOException("no")

    with monkeypatch.context() as patched, pytest.raises(StoreError, match="cannot be brought up to date, and is as"):
        patched.setattr(migrations, "MIGRATIONS", (fail,))
        open_store(one)
    with duckdb.connect(str(one), read_only=True) as connection:
        assert connection.execute("SELECT number FROM ingero_private.version").fetchall() == [(1,)]
        assert connection.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'half'").fetchall() == [(0,)]
    with open_store(one) as store:
        assert ask(store, EPOCHS) == EXPECTED


def test_without_room_for_the_copy_nothing_is_changed(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(one)
    with monkeypatch.context() as patched, pytest.raises(DiskFull, match="is copied before it is changed: that needs"):
        patched.setattr(migrations.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
        open_store(one)
    assert digest(one) == before


def test_a_file_without_a_version_is_refused(one: Path) -> None:
    with duckdb.connect(str(one)) as connection:
        connection.execute("DELETE FROM ingero_private.version")
    for read_only in (False, True):
        with pytest.raises(SchemaError, match="does not say by which version"):
            open_store(one, read_only=read_only)


def test_a_new_file_and_a_migrated_one_hold_the_same(one: Path, tmp_path: Path) -> None:
    held = []
    for path in (one, tmp_path / "new.duckdb"):
        open_store(path).close()
        with duckdb.connect(str(path), read_only=True) as connection:
            held.append(
                connection.execute(
                    "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
                    "ORDER BY ALL"
                ).fetchall()
            )
    assert held[0] == held[1]
    assert {view.name for view in VIEWS} <= {name for _, name, *_ in held[0]}
