"""`ingero export` and `ingero demo --out` as a person uses them, and where they cannot write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from ingero_mcp.cli.main import main
from ingero_mcp.exported.begun import Begun
from tests.export.traces import assert_sound, of, read
from tests.importers.ingero_lookalike import event, write
from tests.processes import INGERO, run_ingero

FORMATS = ("perfetto", "parquet", "csv")


def test_the_timeline_of_the_demo_shows_who_was_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    assert main(["demo", "--out", str(folder)]) == 0
    assert "all-nodes.duckdb: 2454 events" in capsys.readouterr().out
    made = read((folder / "timeline.perfetto.json").read_bytes())
    assert_sound(made)
    names = {one["pid"]: one["args"]["name"] for one in of(made, "M") if one["name"] == "process_name"}
    starts = {one["id"]: one for one in of(made, "s")}
    finishes = {one["id"]: one for one in of(made, "f")}
    waits: Counter[str] = Counter()
    for number, finish in finishes.items():
        around = [span for span in of(made, "X") if (span["pid"], span["tid"]) == (finish["pid"], finish["tid"])
                  and span["ts"] <= finish["ts"] < span["ts"] + span["dur"]]  # fmt: skip
        if any(finish["ts"] - span["ts"] > 200_000 for span in around):
            waits[names[starts[number]["pid"]]] += 1
    assert waits == {"gpu-node-2 rank 5 (llm-pretrain-7)": 4 * 7}
    assert {one["name"].split()[0] for one in of(made, "C")} >= {
        "ingero.node.health_score",
        "gpu.memory.used",
        "clock,",
    }
    assert [one["name"] for one in of(made, "X") if one["cat"] == "gap"] == ["lost events: 1"]
    # Four databases that every other command opens, and nothing is overwritten.
    assert sorted(path.name for path in folder.glob("*.duckdb")) == [
        "all-nodes.duckdb", "gpu-node-1.duckdb", "gpu-node-2.duckdb", "gpu-node-3.duckdb"
    ]  # fmt: skip
    assert main(["explain", "-d", str(folder / "all-nodes.duckdb"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [culprit["rank"] for culprit in said["culprits"]] == [5]
    assert main(["demo", "--out", str(folder)]) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_exported_and_said(database: Path, tmp_path: Path, form: str) -> None:
    output = tmp_path / "out"
    done = run_ingero("export", "--format", form, "-o", str(output), "-d", str(database), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == {"file": str(output), "format": form, "rows": said["rows"], "bytes": output.stat().st_size}
    through = subprocess.run(
        [*INGERO, "export", "--format", form, "-o", "-", "-d", str(database)], capture_output=True, timeout=60
    )
    assert (through.returncode, through.stderr) == (0, b"")
    assert through.stdout == output.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "story.duckdb"]


def test_files_of_other_programs_are_exported_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.db", events=[event(n) for n in range(5)])
    assert main(["export", "--format", "perfetto", "-o", str(tmp_path / "t"), "-d", str(path), "--cluster", "x"]) == 0
    made = read((tmp_path / "t").read_bytes())
    assert_sound(made)
    assert len(of(made, "X", "i")) == 5
    assert "5 events" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("output", "words"),
    [
        pytest.param("nowhere/out", "No such file", id="no folder"),
        pytest.param(".", "is a folder", id="a folder"),
        pytest.param("/dev/full", "No space left", id="a full disk"),
        pytest.param("story.duckdb", "is what is exported", id="itself"),
        pytest.param("~nobody-of-that-name/out", "home", id="the home of nobody"),
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_what_cannot_be_written_is_one_line(
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: str,
    output: str,
    words: str,
) -> None:
    before = database.read_bytes()
    monkeypatch.chdir(database.parent)
    assert main(["export", "--format", form, "-d", str(database), "-o", output]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and words in said.err
    assert sorted(path.name for path in database.parent.iterdir()) == ["story.duckdb"]
    assert database.read_bytes() == before


def test_a_disk_that_fills_up_leaves_the_old_file_and_no_new_one(database: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    output.write_text("of before")
    # A limit on the size of files ends a write in the middle, as a full disk does.
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
        "from ingero_mcp.cli.main import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", limited, "export", "--format", "csv", "-d", str(database), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "cannot write" in done.stderr
    assert output.read_text() == "of before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "story.duckdb"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_reader_that_goes_away_is_one_line(database: Path, form: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*INGERO, "export", "--format", form, "-o", "-", "-d", str(database)],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "went away" in done.stderr


def test_a_pipe_is_written_to_and_not_replaced(database: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [*INGERO, "export", "--format", "csv", "-o", str(pipe), "-d", str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        text = pipe.read_bytes()
        process.communicate(timeout=60)
    assert process.returncode == 0 and text.startswith(b"cluster_id,")
    assert pipe.is_fifo()


def test_a_link_stays_a_link(database: Path, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert main(["export", "--format", "csv", "-o", str(tmp_path / "link"), "-d", str(database)]) == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text().startswith("cluster_id,")


def test_ctrl_c_leaves_no_half_a_file(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pieces() -> Generator[bytes, None, None]:
        yield b"a,b\r\n"
        assert list(tmp_path.glob(".out.*.partial"))
        raise KeyboardInterrupt

    monkeypatch.setattr("ingero_mcp.cli.export.begin", lambda call, asked: Begun(1, pieces()))
    assert main(["export", "--format", "csv", "-o", str(tmp_path / "out"), "-d", str(database)]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["story.duckdb"]
