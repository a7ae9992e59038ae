"""`ingero backup`: the copy is whole, of one moment, and opens anywhere; writers and the database notice nothing."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import httpx2
import pytest

from ingero_mcp.api import backup as api_backup
from ingero_mcp.cli.main import main
from ingero_mcp.errors import StoreBusy, StoreError
from ingero_mcp.events import Resource, Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.sender import Sender
from ingero_mcp.store import Store, open_store
from ingero_mcp.store import backup as store_backup
from ingero_mcp.store.lock import FileLock
from ingero_mcp.store.schema import VERSION
from ingero_mcp.views import relations
from tests.conftest import RunServer
from tests.processes import run_ingero
from tests.store.test_migrations import ONE
from tests.views.rows import T0, S, call, rows

ROWS = 500
JSON = {"Content-Type": "application/json"}


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a backup."""
    code = main(["backup", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def elsewhere(path: Path, sql: str) -> list[list[Any]]:
    """What another program that uses DuckDB finds in a file."""
    code = "import duckdb, json, sys; print(json.dumps(duckdb.connect(sys.argv[1]).execute(sys.argv[2]).fetchall()))"
    done = subprocess.run(
        [sys.executable, "-c", code, path, sql], capture_output=True, text=True, timeout=60, check=True
    )
    found: list[list[Any]] = json.loads(done.stdout)
    return found


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every private table of a file."""
    with duckdb.connect(str(path), read_only=True) as connection:
        tables = connection.execute(
            "SELECT schema_name || '.' || table_name FROM duckdb_tables() ORDER BY ALL"
        ).fetchall()
        return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for (name,) in tables}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with something in every table."""
    path = tmp_path / "data" / "events.duckdb"
    path.parent.mkdir()
    with open_store(path) as store:
        for run_ in range(2):
            calls = [call(rank, seq, run_ * 60 * S + seq * S) for seq in range(9) for rank in range(2)]
            store.append(rows(calls), key=bytes([run_])).result(timeout=20)
        store.append_context(rows([{"metric_name": "session", "node_id": "n"}])).result(timeout=20)
    return path


def test_a_file_that_nobody_owns_is_copied_table_by_table(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = database.read_bytes()
    code, out, err = run(capsys, tmp_path / "copy.duckdb", "-d", database)
    assert (code, err) == (0, "")
    assert out.startswith(f"{tmp_path}/copy.duckdb: a copy of {database}, ")
    assert contents(tmp_path / "copy.duckdb") == contents(database)
    assert database.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.duckdb", "data"]
    assert elsewhere(tmp_path / "copy.duckdb", "SELECT epoch, count(*) FROM collectives GROUP BY ALL ORDER BY ALL") == [
        [0, 18], [1, 18]
    ]  # fmt: skip


def test_a_copy_is_a_database_like_the_first(database: Path, tmp_path: Path) -> None:
    assert main(["backup", str(tmp_path / "copy"), "-d", str(database)]) == 0
    with open_store(tmp_path / "copy") as store:
        assert store.append(rows([call(0, 0, 0)]), key=bytes([1])).result(timeout=20).duplicate
        assert store.append(rows([call(0, 9, 90 * S)])).result(timeout=20).rows == 1
    for name in relations():
        assert elsewhere(tmp_path / "copy", f"SELECT count(*) FROM {name}")


def test_a_copy_of_an_older_file_is_of_this_version(tmp_path: Path) -> None:
    old = tmp_path / 'it\'s "old".duckdb'
    with duckdb.connect(str(old)) as connection:
        connection.execute(ONE)
        connection.register("incoming", rows([call(0, 0, 0)]))
        connection.execute("INSERT INTO ingero_private.event_rows SELECT * FROM incoming")
    assert main(["backup", str(tmp_path / "copy"), "-d", str(old)]) == 0
    copied = contents(tmp_path / "copy")
    assert copied["ingero_private.version"] == [(VERSION,)]
    assert copied["ingero_private.batches"] == [(b"known", None)]
    assert len(copied["ingero_private.event_rows"]) == 1


def test_nothing_is_overwritten(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(database)
    (tmp_path / "there").write_text("precious")
    for name, words in (("there", "exists; give another name"), ("link", "which is read"), ("no/x", "does not exist")):
        code, out, err = run(capsys, tmp_path / name, "-d", database)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert words in err
    assert (tmp_path / "there").read_text() == "precious"


@pytest.mark.parametrize("what", ["missing", "other", "empty"])
def test_what_is_no_database_of_ours_is_not_copied(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / what
    if what == "other":
        path.write_text("no database")
    elif what == "empty":
        duckdb.connect(str(path)).close()
    code, out, err = run(capsys, tmp_path / "copy", "-d", path)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert not (tmp_path / "copy").exists()


def body(writer: int, batch: int) -> bytes:
    samples = [Sample("m", T0 + batch, float(row), {"ingero.event.seq": batch * ROWS + row}) for row in range(ROWS)]
    return encode_samples(Resource({"ingero.node.id": f"w{writer}"}), samples)


@contextmanager
def writers(address: str, count: int) -> Iterator[list[int]]:
    """Send batch after batch until the block ends; gives how many of each writer are acknowledged."""
    acknowledged, enough = [0] * count, threading.Event()

    def write(writer: int) -> None:
        with Sender(address) as sender:
            while not enough.is_set():
                sender.send("metrics", body(writer, acknowledged[writer]))
                acknowledged[writer] += 1

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield acknowledged
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def test_a_copy_made_while_writers_write_holds_whole_batches_in_their_order(
    run_server: RunServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_server() as server, writers(server.otlp_addr, 3) as acknowledged:
        for copy in ("one", "two"):
            before = [batches + 3 for batches in acknowledged]
            while any(now < wanted for now, wanted in zip(acknowledged, before, strict=True)):
                threading.Event().wait(0.01)
            begun = list(acknowledged)
            code, out, err = run(capsys, tmp_path / copy, "-d", server.db_path)
            assert (code, err) == (0, ""), err
            assert f"a copy of {server.url}" in out
            ended = list(acknowledged)
            sql = "SELECT node_id, timestamp_ns, count(*), count(DISTINCT id) FROM events GROUP BY ALL ORDER BY ALL"
            found = elsewhere(tmp_path / copy, sql)
            assert {(rows_, ids) for _, _, rows_, ids in found} == {(ROWS, ROWS)}
            for writer in range(3):
                batches = [ns - T0 for node, ns, *_ in found if node == f"w{writer}"]
                assert batches == list(range(len(batches)))
                # One more than was acknowledged may be there: it was committed, and its producer did not know yet.
                assert begun[writer] <= len(batches) <= ended[writer] + 1
        folder = Path(server.db_path).parent
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_the_local_server_is_asked_if_no_database_is_named(
    run_server: RunServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, tmp_path / "copy")
    assert (code, err.count("\n")) == (1, 1) and "no local server is running" in err
    token = tmp_path / "token"
    token.write_text("secret")
    with run_server(auth_token_file=str(token)) as server:
        code, out, _ = run(capsys, tmp_path / "copy", "--json")
        assert code == 0
        said = json.loads(out)
        assert (said["of"], said["bytes"]) == (server.url, (tmp_path / "copy").stat().st_size)
    assert elsewhere(tmp_path / "copy", "SELECT count(*) FROM events") == [[0]]


def test_a_server_gives_its_copy_only_to_those_who_may_ask_and_to_no_path(
    run_server: RunServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with run_server(auth_token_file=str(token)) as server:
        url = f"{server.url}/api/v1/backup"
        assert httpx2.post(url, json={}).status_code == 401
        allowed = {"Authorization": "Bearer secret"}
        assert httpx2.get(url, headers=allowed).status_code == 405
        # What a page of another site could send without asking first.
        assert httpx2.post(url, content="{}", headers=allowed | {"Content-Type": "text/plain"}).status_code == 400
        before = set(tmp_path.iterdir())
        given = httpx2.post(url, json={"path": str(tmp_path / "x"), "file": "y"}, headers=allowed)
        assert (given.status_code, given.content[8:12]) == (200, b"DUCK")
        assert set(tmp_path.iterdir()) == before


def test_one_copy_is_made_at_a_time_and_who_gives_up_stops_it(
    run_server: RunServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    back_up = Store.back_up

    def slow(store: Store, new: Path, tell: store_backup.Progress | None = None) -> int:
        begun.set()
        go_on.wait(20)
        try:
            return back_up(store, new, tell)
        finally:
            ended.set()

    with run_server() as server:
        with Sender(server.otlp_addr) as sender:
            sender.send("metrics", body(0, 0))
        monkeypatch.setattr(Store, "back_up", slow)
        url = f"{server.url}/api/v1/backup"
        with pytest.raises(httpx2.TimeoutException):
            httpx2.post(url, json={}, timeout=0.5)
        assert begun.is_set()
        go_on.set()
        assert ended.wait(20)
        monkeypatch.setattr(Store, "back_up", back_up)
        assert httpx2.post(url, json={}, timeout=20).status_code == 200
        making = api_backup._Making()
        with making, pytest.raises(StoreBusy), making:
            raise AssertionError("two at once")
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".backup")] == []


def test_what_a_killed_server_left_is_removed_by_the_next(run_server: RunServer, tmp_path: Path) -> None:
    left = tmp_path / ".events.duckdb.abc.backup"
    left.mkdir()
    (left / "copy").write_text("half a copy")
    with run_server():
        assert not left.exists()


def test_without_room_for_a_copy_a_server_says_so_and_makes_none(
    run_server: RunServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_server() as server:
        with Sender(server.otlp_addr) as sender:
            sender.send("metrics", body(0, 0))
        monkeypatch.setattr(store_backup, "disk_usage", lambda _: SimpleNamespace(free=0))
        code, out, err = run(capsys, tmp_path / "copy", "-d", server.db_path)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "a copy needs up to" in err
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("kib", [16, 300])
def test_a_full_disk_is_one_line_and_leaves_nothing(database: Path, tmp_path: Path, kib: int) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))

    done = run_ingero("backup", str(tmp_path / "copy"), "-d", str(database), preexec_fn=limit)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "the disk is full" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_an_owner_that_does_not_answer_is_named(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = FileLock(database)
    lock.announce("http://127.0.0.1:9", "")
    code, _, err = run(capsys, tmp_path / "copy", "-d", database)
    lock.release()
    assert (code, err.count("\n")) == (1, 1)
    assert "http://127.0.0.1:9 did not send the copy" in err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_what_the_one_who_is_told_raises_ends_the_copying(database: Path, tmp_path: Path) -> None:
    def refuse(_done: int, _whole: int) -> None:
        raise StoreError("enough")

    with open_store(database) as store:
        with pytest.raises(StoreError, match="enough"):
            store.back_up(tmp_path / "copy", refuse)
        assert store.append(rows([call(0, 9, 90 * S)])).result(timeout=20).rows == 1
        assert store.failure is None
