"""`ingero merge` as a person uses it: what it says, what it leaves, and what it never touches."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ingero_mcp.cli.main import main
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from ingero_mcp.store.lock import FileLock
from tests.conftest import RunServer
from tests.importers.ingero_lookalike import chain, event, session, write
from tests.processes import INGERO, run_ingero
from tests.views.rows import S, ask, call, rows

MS = 1_000_000


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a merge."""
    code = main(["merge", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def asked(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_store(path, read_only=True) as store:
        return store.query(check(sql), limit=1000).rows


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, Path]:
    """A database of an agent and one of ours, in a folder of their own."""
    folder = tmp_path / "in"
    folder.mkdir()
    agent = write(folder / "a.db", events=[event(n) for n in range(3)], causal_chains=[chain("n1:x", node="n1")],
                  sessions=[session(0, 9, node="n1")])  # fmt: skip
    with open_store(folder / "b.duckdb") as store:
        store.append(rows([{"node_id": "n2", "event_seq": 1, "metric_name": "m", "timestamp_ns": 5}])).result(
            timeout=20
        )
    return agent, folder / "b.duckdb"


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_a_mix_becomes_one_database_and_the_sources_stay_as_they_are(
    sources: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digests(tmp_path / "in")
    code, out, err = run(capsys, *sources, "-o", tmp_path / "out.duckdb")
    assert (code, err) == (0, "")
    assert out == f"{tmp_path}/out.duckdb: 4 events of 2 files (chains 1, sessions 1)\n"
    assert asked(tmp_path / "out.duckdb", "SELECT id FROM events ORDER BY ALL") == [
        ("n1:0",), ("n1:1",), ("n1:2",), ("n2:1",)
    ]  # fmt: skip
    assert digests(tmp_path / "in") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.duckdb"]


def test_json_says_what_came_from_where(
    sources: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = write(tmp_path / "again.db", events=[event(n, duration=7 * n) for n in range(1, 3)] + [event(0)])
    code, out, err = run(capsys, *sources, again, "-o", tmp_path / "out.duckdb", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert [(source["kind"], source["events"]) for source in said["sources"]] == [
        ("Ingero database", 3), ("ingero database", 1), ("Ingero database", 3)
    ]  # fmt: skip
    assert said["holds"] == {"events": 6, "chains": 1, "sessions": 1}
    assert (said["more_than_once"], said["renumbered"], said["clock_warnings"]) == (1, 2, [])


ALIASES = ["the same", "a symlink", "a hard link", "a relative path", "a detour", "a link to the folder"]


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("place", [0, 1])
def test_the_output_is_never_a_source_by_whatever_name(
    sources: tuple[Path, Path],
    place: int,
    alias: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = sources[place]
    folder = source.parent
    other = folder.parent / "other"
    if alias == "the same":
        name = str(source)
    elif alias == "a symlink":
        other.symlink_to(source)
        name = str(other)
    elif alias == "a hard link":
        other.hardlink_to(source)
        name = str(other)
    elif alias == "a relative path":
        monkeypatch.chdir(folder)
        name = source.name
    elif alias == "a detour":
        name = f"{folder}/../in/{source.name}"
    else:
        other.symlink_to(folder)
        name = f"{other}/{source.name}"
    before = digests(folder)
    for flags in ([], ["--overwrite"]):
        code, out, err = run(capsys, *sources, "-o", name, *flags)
        assert (code, out) == (1, "")
        assert err == f"ingero: {name} is {source}, which is read; give the output another name\n"
    assert digests(folder) == before


@pytest.mark.parametrize("ending", ["-wal", ".wal", ".lock"])
def test_the_output_is_nothing_that_a_source_would_take_for_its_own(
    sources: tuple[Path, Path], ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *sources, "-o", f"{sources[0]}{ending}")
    assert code == 1 and "would be taken for a part of" in err


def test_the_log_of_the_output_is_no_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "out.duckdb.wal", events=[event(1)])
    code, _, err = run(capsys, source, "-o", tmp_path / "out.duckdb")
    assert code == 1 and "which is read" in err
    assert source.exists()


def test_what_is_there_is_replaced_only_if_told_so(
    sources: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.duckdb"
    out.write_text("precious")
    (tmp_path / "out.duckdb.wal").write_text("the log of what was there")
    code, _, err = run(capsys, *sources, "-o", out)
    assert (code, err) == (1, f"ingero: {out} exists; give another name, or replace it with --overwrite\n")
    assert out.read_text() == "precious"
    assert run(capsys, *sources, "-o", out, "--overwrite")[0] == 0
    assert asked(out, "SELECT count(*) FROM events") == [(4,)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.duckdb"]


@pytest.mark.parametrize("ending", [".wal", "-wal", "-shm", "-journal"])
def test_a_log_that_an_old_output_left_behind_does_no_harm(
    sources: tuple[Path, Path], tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"out.duckdb{ending}").write_bytes(b"left behind")
    assert run(capsys, *sources, "-o", tmp_path / "out.duckdb")[0] == 0
    assert asked(tmp_path / "out.duckdb", "SELECT count(*) FROM events") == [(4,)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.duckdb"]


def test_a_database_in_use_is_neither_replaced_nor_read(
    sources: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.duckdb"
    assert run(capsys, sources[0], "-o", out)[0] == 0
    for used, arguments in ((out, ["-o", out, "--overwrite"]), (sources[1], ["-o", tmp_path / "new.duckdb"])):
        lock = FileLock(used)
        code, _, err = run(capsys, *sources, *arguments)
        lock.release()
        assert (code, err.count("\n")) == (1, 1)
        assert f"{used} is owned by process {os.getpid()}" in err
    assert asked(out, "SELECT count(*) FROM events") == [(3,)]
    assert not (tmp_path / "new.duckdb").exists()


def test_a_source_that_is_damaged_leaves_nothing_behind(
    sources: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, cut in ((0, 9000), (1, 5000)):
        bad = sources[place].with_name("bad")
        bad.write_bytes(sources[place].read_bytes()[:cut])
        code, out, err = run(capsys, *sources, bad, "-o", tmp_path / "out.duckdb")
        assert (code, out, err.count("\n")) == (1, "", 1), err
        bad.unlink()
        assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.db", "-o", "x"], "none.db does not exist"),
        ([".", "-o", "x"], ". is a folder; name the files in it"),
        (["a.db", "-o", "no/x"], "does not exist"),
        (["a.db", "-o", "."], "is not a file"),
        (["a.db", "-o", "x", "--clock-skew-threshold", "5"], "duration"),
        (["a.db", "-o", "x", "--force-node", "a:b"], "holds a colon"),
        (["a.db", "-o", "x", "-o", "a.db"], "a.db, which is read"),
    ],
)
def test_wrong_arguments_are_one_line(
    sources: tuple[Path, Path], arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.chdir(sources[0].parent)
    before = digests(sources[0].parent)
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert words in err
    assert digests(sources[0].parent) == before


def test_a_file_that_is_named_twice_is_read_once(
    sources: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(sources[1])
    code, out, err = run(capsys, sources[1], link, sources[1], "-o", tmp_path / "out.duckdb")
    assert (code, err) == (0, f"ingero: {link} is {sources[1]}; it is read once\n")
    assert "1 events of 1 files" in out


def test_of_a_database_that_a_server_owns_a_copy_is_merged(
    sources: tuple[Path, Path], tmp_path: Path, run_server: RunServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_server(db_path=str(sources[1])) as server:
        code, out, err = run(capsys, *sources, "-o", tmp_path / "out.duckdb")
        assert (code, err) == (0, f"ingero: {sources[1]} is in use; {server.url} gave a copy of it\n")
        code, _, err = run(capsys, sources[0], "-o", sources[1], "--overwrite")
        assert code == 1 and "is owned by process" in err
    assert "4 events of 2 files" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.duckdb"]


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A file system of that size; skips where it cannot be had."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs root, to mount")
@pytest.mark.parametrize("kib", [64, 600, 1500, 2600])
def test_a_full_disk_is_one_line_and_leaves_nothing(sources: tuple[Path, Path], tmp_path: Path, kib: int) -> None:
    many = write(tmp_path / "many.db", events=[event(n) for n in range(20_000)])
    with small_disk(tmp_path / "small", kib) as small:
        done = run_ingero("merge", str(many), *map(str, sources), "-o", str(small / "out.duckdb"))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("ingero: ") and done.stderr.count("\n") == 1, done.stderr
        assert "the disk is full" in done.stderr
        assert list(small.iterdir()) == []


@pytest.mark.parametrize("kib", [16, 700])
def test_a_file_that_may_not_grow_is_one_line_and_leaves_nothing(
    sources: tuple[Path, Path], tmp_path: Path, kib: int
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))

    out = tmp_path / "out.duckdb"
    done = run_ingero("merge", *map(str, sources), "-o", str(out), preexec_fn=limit)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"ingero: {out} was not written: the disk is full"), done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_merge_that_is_told_to_end_leaves_nothing(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    many = write(folder / "many.db", events=[event(n) for n in range(50_000)])
    out = tmp_path / "out.duckdb"
    command = [*INGERO, "merge", many, "-o", out]
    # Whoever runs the tests in the background may have told them to ignore Ctrl-C.
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    piped = subprocess.PIPE
    with subprocess.Popen(command, stdout=piped, stderr=piped, preexec_fn=listening) as merging:
        while merging.poll() is None and len(list(tmp_path.iterdir())) == 1:
            threading.Event().wait(0.005)
        merging.send_signal(number)
        stdout, stderr = merging.communicate(timeout=60)
    assert (merging.returncode, stdout, stderr) == (130, b"", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_what_is_only_in_the_log_of_a_source_is_merged_and_the_log_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with open_store(tmp_path / "live") as store:
        for seq in range(3):
            store.append(rows([{"node_id": "n", "event_seq": seq, "metric_name": "m"}])).result(timeout=20)
        for ending in ("", ".wal"):
            shutil.copyfile(tmp_path / f"live{ending}", folder / f"killed{ending}")
    before = digests(folder)
    assert before["killed.wal"]
    assert run(capsys, folder / "killed", "-o", tmp_path / "out")[0] == 0
    assert asked(tmp_path / "out", "SELECT count(*) FROM events") == [(3,)]
    assert digests(folder) == before


def job(path: Path, ranks: range, offset_ns: int) -> Path:
    """A job of four ranks, of which this file saw some, on a node whose clock is wrong."""
    calls = [
        call(rank, step, offset_ns + step * S + rank * 3 * MS, node_id=f"node-{1 + rank // 2}", world_size=4,
             timing_source="kernel_gpu", duration_ns=100 * MS - rank * 3 * MS, event_seq=10 * step + rank,
             attrs={"nccl.rank": rank})
        for step in range(60) for rank in ranks
    ]  # fmt: skip
    with open_store(path) as store:
        store.append(rows(calls)).result(timeout=20)
    return path


@pytest.mark.parametrize(("offset_ns", "words"), [(47 * MS, "ahead of"), (-47 * MS, "behind")])
def test_clocks_that_are_apart_are_said_and_kept(
    tmp_path: Path, offset_ns: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [job(tmp_path / "a", range(2), 0), job(tmp_path / "b", range(2, 4), offset_ns)]
    code, _, err = run(capsys, *files, "-o", tmp_path / "out", "--clock-skew-threshold", "10ms")
    assert code == 0
    assert err.startswith(f"WARNING: node-2 is ~47ms {words} node-1 (bound: ") and err.count("\n") == 1
    assert float(err.partition("bound: ")[2].removesuffix("ms)\n")) < 2
    kept = dict(asked(tmp_path / "out", "SELECT node_id, offset_ns FROM clocks"))
    assert abs(kept["node-2"] - kept["node-1"] - offset_ns) < MS
    with open_store(tmp_path / "out", read_only=True) as store:
        assert ask(store, "SELECT max(abs(lateness_ns)) < 10000000 FROM collectives") == [(True,)]
    code, _, err = run(capsys, tmp_path / "out", *files, "-o", tmp_path / "again")
    assert (code, err) == (0, "")  # 47 ms is less than the usual threshold
    assert asked(tmp_path / "again", "SELECT DISTINCT node_id, offset_ns FROM clocks ORDER BY ALL") == sorted(
        kept.items()
    )


def test_who_began_later_has_no_wrong_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [
        write(tmp_path / f"{node}.db", events=[event(1000 * n * place, node) for n in range(1, 9)],
              sessions=[session(1000 * place, 9000 * place, node=node)])
        for place, node in ((1, "n1"), (40, "n2"))
    ]  # fmt: skip
    code, _, err = run(capsys, *files, "-o", tmp_path / "out", "--clock-skew-threshold", "1ns")
    assert (code, err) == (0, "")
    assert asked(tmp_path / "out", "SELECT count(*) FROM clocks") == [(0,)]
