"""Databases that are damaged, lie or attack: one clear line, nothing handed out, nothing run, nothing written."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import ConfigError, ImportFileError
from ingero_mcp.importers.imported import Names
from ingero_mcp.importers.ingero import sqlite as ingero_sqlite
from ingero_mcp.importers.registry import open_file, sort_out
from tests.conftest import DATA
from tests.importers.ingero_lookalike import EVENTS, START_NS, chain, change, event, session, statements, write

HOSTILE = DATA.parent / "cases" / "inputs" / "hostile.db"


def sound(path: Path, count: int = 200) -> Path:
    """An ordinary database with something in most tables."""
    return write(
        path,
        events=[event(n, stack_hash=n + 1) for n in range(count)],
        causal_chains=[chain(f"n1:{n}", node="n1") for n in range(4)],
        stack_traces=[{"hash": n, "ips": "", "frames": '[{"s":"f"}]'} for n in range(20)],
        sessions=[session(0, 900, node="n1")],
    )


def refusal(path: Path) -> str:
    """The message of the refusal: one printable line that names the file, which stays as it was."""
    before = state(path.parent)
    began = monotonic_s()
    with pytest.raises(ImportFileError) as caught:
        open_file(path)
    assert monotonic_s() - began < 5
    assert state(path.parent) == before
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 800
    return message


def state(folder: Path) -> dict[str, str]:
    """Every file of a folder, with its content."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def replaced(path: Path, table: str, statement: str, *more: str) -> Path:
    """A database in which `statement` makes something else of a table."""
    return change(write(path, events=[event(1)]), f"DROP TABLE {table}", statement, *more)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
AS_EVENTS = (
    f"{ENDLESS} i AS id, {START_NS} AS timestamp, 1 AS pid, 1 AS tid, 1 AS source, 1 AS op, 1 AS duration FROM n"
)


@pytest.mark.parametrize(
    ("table", "made", "said"),
    [
        ("events", (f"CREATE VIEW events AS {AS_EVENTS}",), "events is a view, not a table"),
        ("sessions", ("CREATE VIEW sessions AS SELECT zeroblob(1000000000) AS started_at",), "sessions is a view"),
        ("schema_info", ("CREATE VIEW schema_info AS SELECT 'version' AS key, '0.9' AS value",), "is a view"),
        ("events", ("CREATE VIRTUAL TABLE events USING fts4(id, timestamp)",), "events is not an ordinary table"),
        ("stack_traces", ("CREATE VIRTUAL TABLE stack_traces USING rtree(a, b, c)",), "not an ordinary table"),
        ("process_names",
         ("CREATE TABLE process_names (pid, seen_at, name GENERATED ALWAYS AS (printf('%.*c', 100000000, 'g')))",),
         "process_names.name is a generated column"),
        ("events", ("CREATE TABLE events (id, timestamp, pid, source, op)",), "without the columns tid, duration"),
        ("schema_info", ("CREATE TABLE schema_info (key)",), "without the columns key, value"),
        ("schema_info", ("CREATE TABLE schema_info (key, value)",), "schema version missing; known are 0.8, 0.9, 0.10"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_table_is_refused(tmp_path: Path, table: str, made: tuple[str, ...], said: str) -> None:
    message = refusal(replaced(tmp_path / "x.db", table, *made))
    assert message.startswith("x.db ")
    assert said in message
    assert message.endswith("nothing was stored")


@pytest.mark.parametrize(
    ("said", "statement"),
    [
        ("written by a newer agent (user_version 11; this program knows up to 10)", "PRAGMA user_version = 11"),
        ("the schema version 0.11; known are", "UPDATE schema_info SET value = '0.11'"),
        ("the schema version 0.7; known are", "UPDATE schema_info SET value = '0.7'"),
        ("the schema version a b", "UPDATE schema_info SET value = 'a' || char(10) || 'b'"),
        ("the schema version missing", "DELETE FROM schema_info"),
    ],
)
def test_a_version_that_is_not_known_is_named(tmp_path: Path, said: str, statement: str) -> None:
    assert said in refusal(change(write(tmp_path / "x.db", events=[event(1)]), statement))


@pytest.mark.parametrize("root", [0, 2])
def test_a_view_that_claims_to_be_a_table_is_not_read(tmp_path: Path, root: int) -> None:
    path = replaced(
        tmp_path / "x.db",
        "events",
        f"CREATE VIEW events AS {AS_EVENTS}",
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET type = 'table', rootpage = {root} WHERE name = 'events'",
    )
    assert "events" in refusal(path)


def test_reading_through_a_view_is_refused_even_if_the_schema_was_believed(tmp_path: Path) -> None:
    path = replaced(tmp_path / "x.db", "events", "CREATE VIEW events AS SELECT abs(1) AS id FROM schema_info")
    with (
        pytest.raises(ImportFileError, match="tables that run code"),
        ingero_sqlite.Snapshot(path).opened() as reader,
    ):
        reader.all("SELECT id FROM events")


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "INSERT INTO schema_info VALUES ('a', 'b')",
        "CREATE TEMP TABLE t (x)",
        "SELECT randomblob(1000000000)",
        "SELECT load_extension('x')",
        "PRAGMA query_only = OFF",
        "PRAGMA trusted_schema = ON",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    ],
)
def test_the_connection_would_refuse_any_other_statement(tmp_path: Path, statement: str) -> None:
    path = sound(tmp_path / "x.db", 3)
    before = state(tmp_path)
    with pytest.raises(ImportFileError), ingero_sqlite.Snapshot(path).opened() as reader:
        reader.all(statement)
    assert state(tmp_path) == before


def test_reading_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sound(tmp_path / "x.db", 5000)
    monkeypatch.setattr(ingero_sqlite, "_LEAST_S", -1000.0)
    monkeypatch.setattr(ingero_sqlite, "_OPS_PER_LOOK", 10)
    assert "took longer than" in refusal(path)


def test_triggers_and_code_in_other_tables_are_not_run(tmp_path: Path) -> None:
    path = change(
        sound(tmp_path / "x.db"),
        "CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT raise(ABORT, 'touched'); END",
        "CREATE TABLE bait (a, b TEXT NOT NULL GENERATED ALWAYS AS (printf('%.*c', 100000000, a)))",
        "INSERT INTO bait (a) VALUES ('x')",
        "CREATE INDEX deep ON events (abs(pid)) WHERE length(printf('%.*c', 1000, 'x')) > 1",
    )
    read = open_file(path)
    assert (read.rows, sum(batch.num_rows for batch in read.batches)) == (200, 200)


def test_constraints_of_the_file_are_not_evaluated(tmp_path: Path) -> None:
    checked = EVENTS["0.9"].replace(
        "pid INTEGER NOT NULL", "pid INTEGER NOT NULL CHECK (length(printf('%.*c', 9, pid)))"
    )
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        for statement in [checked, *statements("0.9")[1:]]:
            connection.execute(statement)
        connection.commit()
    assert open_file(path).rows == 0


def test_a_value_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.db", events=[event(1)], causal_chains=[chain("a", summary="x" * (1 << 21))])
    assert "a value or a row longer than 1048576 bytes" in refusal(path)
    blob = write(tmp_path / "y.db", events=[event(1, comm=b"x" * (1 << 21))], version="0.10")
    assert "longer than 1048576 bytes" in refusal(blob)


def test_a_declared_length_of_2_gb_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.db", events=[event(1)], stack_traces=[{"hash": 1, "ips": "i" * 40, "frames": "f" * 40}])
    data = bytearray(path.read_bytes())
    row = data.index(b"i" * 40 + b"f" * 40)
    # A cell: length of the payload, row number, then the header of the record. Here 84 bytes, row 1.
    cell = data.rindex(b"\x54\x01", row - 20, row)
    data[cell : cell + 5] = b"\x88\x80\x80\x80\x00"
    path.write_bytes(data)
    assert "damaged" in refusal(path)


def test_a_header_that_claims_2_gb_is_refused(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.db")
    data = bytearray(path.read_bytes())
    data[28:32] = (2**31 // 4096).to_bytes(4, "big")
    path.write_bytes(data)
    assert "damaged or cut off" in refusal(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a SQLite file"),
        (b"SQLite format 2\0" + bytes(100), "not a SQLite file"),
        (b"SQLite format 3\0", "cut off within the header of a SQLite file"),
        (b"SQLite format 3\0" + bytes(84), "is damaged or cut off"),
        (b"SQLite format 3\0" + bytes(4080), "is damaged or cut off"),
        (b"hello\n", "not a SQLite file"),
    ],
)
def test_what_is_no_database_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    assert said in refusal(path)


def test_a_database_of_another_program_is_said(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE events (id)")
        connection.commit()
    assert "a SQLite database of another program, without the tables schema_info" in refusal(path)


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    data = sound(tmp_path / "whole.db").read_bytes()
    path = tmp_path / "cut.db"
    for size in range(0, len(data), len(data) // 40):
        path.write_bytes(data[:size])
        refusal(path)


@pytest.mark.parametrize("seed", range(8))
def test_flipped_bits_do_no_harm(tmp_path: Path, seed: int) -> None:
    data = sound(tmp_path / "whole.db", 60).read_bytes()
    dice = random.Random(seed)
    path = tmp_path / "flipped.db"
    refused = 0
    for _ in range(60):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 3, 20))):
            changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        path.write_bytes(changed)
        try:
            read = open_file(path)
            # What was counted is what is handed out: no row is lost between the two readings.
            assert sum(batch.num_rows for batch in read.batches) == read.rows
            assert sum(batch.num_rows for batch in read.context) == sum(read.context_rows.values())
        except ImportFileError as error:
            assert str(error).isprintable()
            refused += 1
    assert refused
    assert {entry.name for entry in tmp_path.iterdir()} == {"whole.db", "flipped.db"}


@pytest.mark.skipif(not HOSTILE.exists(), reason="the collected hostile inputs are not beside this checkout")
@pytest.mark.parametrize("name", ["hostile.db", "x?mode=rwc", "a#b%20c.db", "two words", "ümlaut\udcff"])
def test_the_collected_hostile_database_is_refused_under_any_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    shutil.copyfile(HOSTILE, path)
    assert "events is a view" in refusal(path)


@pytest.mark.parametrize("name", ["x?mode=rwc", "a#b.db", "100%25.db", "two words.db", "-wal", "ümlaut\udcff", "a\nb"])
def test_a_sound_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    path = sound(tmp_path / "plain.db").rename(tmp_path / name)
    before = state(tmp_path)
    assert open_file(path).rows == 200
    assert state(tmp_path) == before


def test_a_log_beside_the_file_is_read_and_left_alone(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.db")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("INSERT INTO events SELECT 'n1:999', timestamp, pid, tid, source, op, duration, gpu_id, arg0, "
                       "arg1, ret_code, stack_hash, node, rank, local_rank, world_size, stack_ips, cgroup_id "
                       "FROM events LIMIT 1")  # fmt: skip
        writer.commit()
        before = state(tmp_path)
        assert before.keys() == {"x.db", "x.db-wal", "x.db-shm"}
        read = open_file(path)
        assert state(tmp_path) == before
        # What the agent goes on to write does not disturb what was read.
        writer.execute("DELETE FROM events")
        writer.commit()
        assert sum(batch.num_rows for batch in read.batches) == read.rows == 201


def test_a_file_in_wal_mode_whose_log_is_gone_is_read(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.db")
    change(path, "PRAGMA journal_mode = WAL")
    before = state(tmp_path)
    assert before.keys() == {"x.db"}
    assert open_file(path).rows == 200
    assert state(tmp_path) == before


def test_copies_of_files_with_a_log_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    path = sound(tmp_path / "x.db")
    (tmp_path / "x.db-wal").write_bytes(b"no log")
    read = open_file(path)
    assert len(list(folder.iterdir())) == 1
    assert read.rows == sum(batch.num_rows for batch in read.batches) == 200
    del read
    assert list(folder.iterdir()) == []


def test_a_journal_is_not_played_back(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.db")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "x.db-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504) + bytes(victim))
    assert "left in the middle of a change (x.db-journal lies beside it)" in refusal(path)
    (tmp_path / "x.db-journal").write_bytes(bytes(512))
    assert open_file(path).rows == 200


def test_a_file_that_changes_between_the_readings_is_not_mixed_up(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.db")
    read = open_file(path)
    change(path, "DELETE FROM events")
    with pytest.raises(ImportFileError, match="was changed while it was read"):
        list(read.batches)


def test_a_link_given_by_name_is_followed_to_its_file(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sound(tmp_path / "x.db"))
    assert open_file(link).rows == 200
    dangling = tmp_path / "dangling.db"
    dangling.symlink_to(tmp_path / "gone")
    assert "not a SQLite file" in refusal(dangling)


def test_what_is_not_a_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a SQLite file" in refusal(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("most", "said"),
    [("_MOST_NODES", "nodes"), ("_MOST_SESSIONS", "sessions"), ("_MOST_PROCESS_NAMES", "process names"),
     ("_MOST_RANKS", "ranks")],
)  # fmt: skip
def test_absurd_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str, said: str) -> None:
    monkeypatch.setattr(f"ingero_mcp.importers.ingero.survey.{most}", 1)
    path = write(
        tmp_path / "x.db",
        events=[event(1, rank=1), event(2, "n2", rank=2)] if said in ("nodes", "ranks") else [],
        sessions=[session(0, 1), session(2, 3)],
        process_names=[{"pid": n, "name": "x"} for n in range(2)],
    )
    assert f"names 2 {said}; at most 1 are read" in refusal(path)


@pytest.mark.parametrize("name", ["", "a:b", "x" * 256, "a\nb", "a\u200bb"])
def test_a_given_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        Names(node=name)


def damaged(path: Path) -> None:
    sound(path)
    os.truncate(path, path.stat().st_size // 2)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()


def test_a_folder_is_sorted_out_by_content(tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    (folder / "deep").mkdir(parents=True)
    first = sound(folder / "b.txt", 3)
    second = sound(folder / "deep" / "noname", 4)
    Path(f"{second}-wal").write_bytes(b"no log")
    foreign(folder / "c.db")
    (folder / "a.db").write_text("no database")
    os.mkfifo(folder / "pipe")
    outside = sound(tmp_path / "outside.db")
    (folder / "link.db").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    found = sort_out(folder)
    assert found.files == (first, second)
    assert dict(found.skipped) == {
        folder / "a.db": "of no known format",
        folder / "c.db": "of no known format",
        folder / "link.db": "a link, which is not followed",
        folder / "linked": "a link, which is not followed",
        folder / "pipe": "not a file",
    }


@pytest.mark.parametrize("make", [lambda path: path.write_text("x"), foreign, lambda path: None])
def test_a_folder_with_nothing_in_it_is_an_error(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x.db")
    with pytest.raises(ImportFileError, match=r"holds nothing that can be imported. Accepted: op trace: .*Ingero"):
        sort_out(tmp_path)


def test_a_damaged_database_in_a_folder_is_not_passed_over(tmp_path: Path) -> None:
    damaged(tmp_path / "x.db")
    assert sort_out(tmp_path).files == (tmp_path / "x.db",)
