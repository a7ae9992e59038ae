"""`ingero import` and `ingero query -d` over databases of agents, as a person uses them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ingero_mcp.cli import opened
from ingero_mcp.cli.import_file import put
from ingero_mcp.cli.main import main
from ingero_mcp.importers.registry import open_file
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from tests.importers.ingero_lookalike import chain, event, session, write
from tests.importers.optrace_job import Job
from tests.importers.optrace_job import write as write_trace


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def facts(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[dict[str, Any]]:
    code, out, err = run(capsys, "import", *arguments, "--json")
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)["files"]
    return found


def ask(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.query(check(sql), limit=1000).rows


def asked(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_store(path, read_only=True) as store:
        return ask(store, sql)


def test_the_same_file_twice_adds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.db", events=[event(n) for n in range(5)], causal_chains=[chain("n1:a", node="n1")])
    copy = Path(shutil.copyfile(path, tmp_path / "copy.of.a"))
    database = tmp_path / "x.duckdb"
    for file, stored in ((path, 5), (path, 0), (copy, 0)):
        [fact] = facts(capsys, file, "-d", database)
        assert (fact["kind"], fact["rows"], fact["stored"]) == ("Ingero database", 5, stored)
        assert fact["context"] == {"chains": 1}
    assert asked(database, "SELECT count(*), (SELECT count(*) FROM chains) FROM events") == [(5, 1)]


def test_files_that_overlap_are_not_counted_twice(store: Store, tmp_path: Path) -> None:
    """A copy taken earlier, and a merge: other bytes, other batches, some of the same events."""
    told = chain("n1:a", node="n1")
    files = [
        write(tmp_path / "monday.db", events=[event(n) for n in range(10)], causal_chains=[told]),
        write(tmp_path / "tuesday.db", events=[event(n) for n in range(25)], causal_chains=[told]),
        write(tmp_path / "merged.db", events=[event(n) for n in range(25)] + [event(n, "n2") for n in range(5)],
              causal_chains=[told, chain("n2:a", node="n2")]),
        # The counter of a node that lost its database begins again: same numbers, other events.
        write(tmp_path / "fresh.db", events=[event(n, duration=77, timestamp=event(n + 100)["timestamp"])
                                             for n in range(3)]),
    ]  # fmt: skip
    assert [put(open_file(path), store) for path in files] == [10, 15, 5, 3]
    assert ask(store, "SELECT node_id, count(*) FROM events GROUP BY ALL ORDER BY ALL") == [("n1", 28), ("n2", 5)]
    assert ask(store, "SELECT chain_id FROM chains ORDER BY ALL") == [("n1:a",), ("n2:a",)]


def test_what_is_there_is_found_in_halves_where_there_is_much_of_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingero_mcp.cli.import_file._MOST_ALIKE", 10)
    put(open_file(write(tmp_path / "a.db", events=[event(n) for n in range(50)])), store)
    larger = write(tmp_path / "b.db", events=[event(n) for n in range(53)])
    assert put(open_file(larger), store) == 3


def test_an_import_that_was_broken_off_is_completed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("events", "survey"):
        monkeypatch.setattr(f"ingero_mcp.importers.ingero.{module}.CHUNK_ROWS", 10)
    path = write(tmp_path / "a.db", events=[event(n) for n in range(35)])
    read = open_file(path)
    first = next(read.batches)
    store.append(first).result(timeout=10)
    assert put(open_file(path), store) == 25
    assert ask(store, "SELECT count(*), count(DISTINCT id) FROM events") == [(35, 35)]


def test_a_folder_is_imported_with_notes_on_what_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "agent", events=[event(1)])
    job = Job(steps=1)
    write_trace(folder, job.table(), job.meta())
    (folder / "notes.txt").write_text("x")
    database = folder / "out.duckdb"
    for stored in (1, 0):
        code, out, err = run(capsys, "import", folder, "-d", database)
        assert code == 0
        skipped = [line for line in err.splitlines() if ": skipped, " in line]
        assert skipped == [f"ingero: {folder}/notes.txt: skipped, of no known format"]
        agent, trace = out.splitlines()
        assert agent.startswith(f"{folder}/agent: Ingero database, 1 events")
        assert agent.endswith("1 were there already") != bool(stored)
        assert trace.startswith(f"{folder}/trace-job.parquet: op trace, ")
        assert " of 4 ranks in 1 steps" in trace
    [(events,)] = asked(database, "SELECT count(*) FROM events")
    assert events == 1 + len(job.table())


def test_many_skipped_files_are_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "agent", events=[event(1)])
    for number in range(13):
        (folder / f"{number:02}.txt").write_text("x")
    _, _, err = run(capsys, "import", folder, "-d", tmp_path / "x.duckdb")
    assert len(err.splitlines()) == 11
    assert err.splitlines()[-1] == "ingero: 3 more files were skipped"


def test_a_damaged_file_keeps_all_of_an_import_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "a.db", events=[event(1)])
    bad = write(folder / "b.db", events=[event(n) for n in range(500)])
    bad.write_bytes(bad.read_bytes()[:20_000])
    code, out, err = run(capsys, "import", folder, "-d", tmp_path / "x.duckdb")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "ingero: b.db is damaged or cut off (20000 of " in err
    assert not (tmp_path / "x.duckdb").exists()


def test_names_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.db", "0.8", events=[event(1, None)], sessions=[session(0, 9)])
    database = tmp_path / "x.duckdb"
    code, _, err = run(capsys, "import", path, "-d", database, "--force-node", "gpu-1", "--cluster", "prod")
    assert (code, err) == (0, "")
    assert asked(database, "SELECT cluster_id, node_id FROM events") == [("prod", "gpu-1")]
    assert asked(database, "SELECT cluster_id, node_id FROM sessions") == [("prod", "gpu-1")]
    code, _, err = run(capsys, "import", path, "-d", database, "--force-node", "gpu-2")
    assert (code, err) == (0, f"ingero: {path}: what was there already keeps the names that it was imported under\n")
    assert asked(database, "SELECT node_id FROM events") == [("gpu-1",)]
    code, _, err = run(capsys, "import", path, "-d", database, "--force-node", "a:b")
    assert (code, err) == (1, "ingero: node name 'a:b' holds a colon, which divides node and number in an event's id\n")


def test_a_database_of_an_agent_is_asked_without_a_file_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = write(folder / "old?mode=rwc#.db", "0.8", events=[event(n, None) for n in range(3)])
    before = path.read_bytes()
    sql = "SELECT node, count(*) AS n FROM events GROUP BY node"
    code, out, err = run(capsys, "query", "-d", path, sql)
    assert (code, out.splitlines()[-1].split()) == (0, ["unknown", "3"])
    assert err == (
        f"ingero: {path}: 3 events do not say their node, which is 'unknown' here; name it with --force-node NAME\n"
    )
    code, out, err = run(capsys, "query", "-d", path, "--force-node", "n7", sql, "--json")
    assert (code, json.loads(out)["rows"], err) == (0, [["n7", 3]], "")
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_a_database_too_large_for_memory_is_to_be_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "_MOST_IN_MEMORY", 2)
    path = write(tmp_path / "a.db", events=[event(n) for n in range(3)])
    code, _, err = run(capsys, "query", "-d", path, "SELECT 1 FROM events")
    assert code == 1
    assert f"ingero import {path} -d events.duckdb" in err


def test_other_sqlite_files_are_refused_by_query_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"SQLite format 3\0")
    code, out, err = run(capsys, "query", "-d", path, "SELECT 1 FROM events")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "cut off within the header of a SQLite file" in err
