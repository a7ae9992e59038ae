"""`ingero explain` and POST /api/v1/explain: files of any known kind, a database, or the server that owns it."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ingero_mcp.cli.main import main
from ingero_mcp.store import open_store
from ingero_mcp.synth.scenario import generate
from ingero_mcp.tools.explanation import Explanation
from tests.conftest import RunServer
from tests.importers import flight_recorder_job, kineto_job, optrace_job
from tests.importers.flight_recorder_job import Dump, dump, entry, write_folder, write_json, write_pickle
from tests.processes import INGERO, run_ingero
from tests.tools.explained import MS, NOON, Training, put, put_case

Explain = Callable[..., dict[str, Any]]


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Explain:
    """The one JSON document that `ingero explain --json` prints."""

    def run(path: Path | None, *flags: str) -> dict[str, Any]:
        capsys.readouterr()
        where = [] if path is None else ["-d", str(path)]
        assert main(["explain", *where, "--json", *flags]) == 0
        return one_document(capsys.readouterr().out)

    return run


def one_document(text: str) -> dict[str, Any]:
    """The text as the one line of strict JSON that it should be, with every field of the answer."""
    assert text.count("\n") == 1
    said: dict[str, Any] = json.loads(text, parse_constant=_not_json)
    beside = set() if said["row_count"] or "chains" not in said else {"chains"}
    assert set(said) == set(Explanation.model_fields) | beside
    return said


def _not_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


def ranks(said: dict[str, Any]) -> list[int]:
    return [culprit["rank"] for culprit in said["culprits"]]


def stored(path: Path, job: Training) -> Path:
    """A database with a small job."""
    with open_store(path) as store:
        put(store, job.rows())
    return path


# Files of other kinds, read into memory


def recorded(rank: int, seq: int = 640, state: str = "scheduled", **facts: Any) -> Dump:
    """The dump of a rank whose last collective is this one."""
    ranks = facts.pop("ranks", "[0, 1, 2, 3, 4, 5, 6, 7]")
    at_ns = flight_recorder_job.START_NS + seq * 1000
    times = {"time_created_ns": at_ns, "time_discovered_completed_ns": None if state == "scheduled" else at_ns + 9}
    one = entry(collective_seq_id=seq, op_id=seq, state=state, **(times | facts))
    return dump(
        one, ranks=ranks, pg_status={"0": {"last_enqueued_collective": seq, "last_completed_collective": seq - 1}}
    )


def test_a_folder_of_dumps_and_a_file_of_them_say_the_same(tmp_path: Path, explain: Explain) -> None:
    dumps = {rank: recorded(rank) for rank in range(8)} | {3: recorded(3, 639, "completed")}
    write_folder(tmp_path / "hang", dumps)
    write_json(tmp_path / "hang.json", {str(rank): value for rank, value in dumps.items()})
    for path in (tmp_path / "hang", tmp_path / "hang.json"):
        said = explain(path)
        assert (said["verdict"], said["cause"], ranks(said)) == ("hang", "host_hang", [3])
        assert said["timing_source"] == "recorder"
        assert said["waiting_ranks"] == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("stopped", [(0,), (1, 2), (5,)])
def test_a_job_whose_gpus_stopped(tmp_path: Path, explain: Explain, stopped: tuple[int, ...]) -> None:
    dumps = {rank: recorded(rank) for rank in range(8)}
    for rank in stopped:
        dumps[rank] = recorded(rank, 639)
    write_folder(tmp_path / "hang", dumps)
    said = explain(tmp_path / "hang")
    assert (said["cause"], ranks(said)) == ("gpu_fault", sorted(stopped))


@pytest.mark.parametrize("silent", [(1,), (0, 3)])
def test_a_job_with_groups_in_which_a_host_stopped(tmp_path: Path, explain: Explain, silent: tuple[int, ...]) -> None:
    job = flight_recorder_job.Job(dp=3, tp=2, silent=silent)
    write_folder(tmp_path / "hang", job.dumps())
    said = explain(tmp_path / "hang")
    assert (said["cause"], ranks(said)) == ("host_hang", list(silent))


def test_those_ahead_wait_and_the_rest_is_named_as_a_set(tmp_path: Path, explain: Explain) -> None:
    dumps = {rank: recorded(rank, 641) if rank in (4, 5) else recorded(rank, 640, "completed") for rank in range(8)}
    write_folder(tmp_path / "hang", dumps)
    said = explain(tmp_path / "hang")
    assert ranks(said) == [0, 1, 2, 3, 6, 7]
    assert said["waiting_ranks"] == [4, 5]
    assert "cannot be told from counts" in said["summary"]


@pytest.mark.parametrize("absent", [0, 3])
def test_the_dump_that_is_not_there(tmp_path: Path, explain: Explain, absent: int) -> None:
    dumps = {rank: recorded(rank, ranks="[0, 1, 2, 3]") for rank in range(4) if rank != absent}
    write_folder(tmp_path / "hang", dumps)
    said = explain(tmp_path / "hang")
    assert ranks(said) == [absent]
    assert said["confidence"] <= 0.5
    assert "early_exit" in {other["cause"] for other in said["alternatives"]}
    assert "3 of 4 ranks were seen" in said["gaps"]


def test_an_empty_recorder_and_a_single_dump(tmp_path: Path, explain: Explain) -> None:
    dumps = {rank: recorded(rank, ranks="[0, 1, 2, 3]") for rank in range(4)}
    empty = dump(ranks="[0, 1, 2, 3]", pg_status={})
    write_folder(tmp_path / "empty", dumps | {2: empty})
    said = explain(tmp_path / "empty")
    assert ranks(said) == []
    assert any("the recorder of rank 2 is empty" in fact["statement"] for fact in said["evidence"])
    write_folder(tmp_path / "one", {1: dumps[1]})
    alone = explain(tmp_path / "one")
    assert (alone["verdict"], ranks(alone)) == ("undecidable", [])
    assert "dumps of ranks 0, 2, 3" in alone["enable"][0]


@pytest.mark.parametrize("odd", [(0, 5), (1, 7)])
def test_whose_size_is_the_wrong_one(tmp_path: Path, explain: Explain, odd: tuple[int, int]) -> None:
    dumps = {rank: recorded(rank, 39, input_sizes=[[1025 if rank in odd else 262_144]]) for rank in range(8)}
    write_folder(tmp_path / "sizes", dumps)
    said = explain(tmp_path / "sizes")
    assert (said["cause"], ranks(said)) == ("mismatched_collective", list(odd))
    assert {tuple(group["ranks"]) for group in said["culprit_groups"]} == {odd, tuple(set(range(8)) - set(odd))}
    write_folder(tmp_path / "two", {rank: recorded(rank, 39, input_sizes=[[rank]], ranks="[0, 1]") for rank in (0, 1)})
    tie = explain(tmp_path / "two")
    assert (tie["cause"], ranks(tie)) == ("mismatched_collective", [])


def test_dumps_named_after_hosts_among_other_files(tmp_path: Path, explain: Explain) -> None:
    for rank in (5, 6, 7):
        one = recorded(rank, 12) if rank != 6 else recorded(rank, 12, "completed")
        write_pickle(tmp_path / "hosts" / f"nccl_trace_rank_node-{rank // 2}.example_{rank}", one)
    (tmp_path / "hosts" / "README").write_text("notes")
    (tmp_path / "hosts" / "train.log").write_text("epoch 3")
    said = explain(tmp_path / "hosts")
    assert (said["verdict"], ranks(said), said["waiting_ranks"]) == ("undecidable", [], [5, 7])
    assert "ranks 0-4" in said["summary"]
    assert "3 of 8 ranks were seen" in said["gaps"]


@pytest.mark.parametrize("worker", [(0, 0), (1, 2)])
def test_an_op_trace_with_one_slowed_worker(tmp_path: Path, explain: Explain, worker: tuple[int, int]) -> None:
    job = optrace_job.Job(dp=3, pp=3, tp=2, steps=12, micro_batches=4, slow=(*worker, 1.8))
    said = explain(optrace_job.write(tmp_path, job.table(), job.meta()))
    assert (said["verdict"], ranks(said)) == ("straggler", [job.rank(*worker)])
    assert said["affected_steps"]["count"] == said["affected_steps"]["total"]


def test_an_op_trace_of_a_healthy_job(tmp_path: Path, explain: Explain) -> None:
    job = optrace_job.Job(dp=4, pp=2, steps=12, micro_batches=4)
    said = explain(optrace_job.write(tmp_path, job.table(), job.meta()))
    assert (said["verdict"], ranks(said)) == ("healthy", [])
    assert any("names no hosts" in note for note in said["notes"])


def test_profiler_traces_of_a_late_rank_and_of_a_healthy_job(tmp_path: Path, explain: Explain) -> None:
    job = kineto_job.Job(ranks=4, steps=12, style="numbered", late=(2, 4, 40.0))
    for name, one in (("late", job), ("fine", replace(job, late=None))):
        (tmp_path / name).mkdir()
        one.write(tmp_path / name)
    assert ranks(explain(tmp_path / "late")) == [2]
    assert ranks(explain(tmp_path / "fine")) == []


def test_an_imported_database_says_the_same_as_the_file(
    tmp_path: Path, explain: Explain, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path / "hang", {rank: recorded(rank) for rank in range(8)} | {3: recorded(3, 639, "completed")})
    database = tmp_path / "x.duckdb"
    assert main(["import", str(tmp_path / "hang"), "-d", str(database)]) == 0
    before = explain(tmp_path / "hang")
    assert explain(database) == before
    # The same dumps under other names are the same dumps.
    for path in (tmp_path / "hang").iterdir():
        path.rename(path.with_name(f"copy{path.name}"))
    assert main(["import", str(tmp_path / "hang"), "-d", str(database)]) == 0
    assert ranks(explain(database)) == [3]


# The command


def test_text_is_for_people_and_warnings_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = optrace_job.Job(dp=3, pp=2, steps=12, slow=(1, 1, 1.8), micro_batches=4)
    path = optrace_job.write(tmp_path, job.table(), job.meta())
    assert main(["explain", "-d", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("verdict: straggler")
    assert "names no hosts" in err
    assert main(["explain", "-d", str(path), "--plot"]) == 0
    assert "darkest" in capsys.readouterr().out


def test_as_a_process_it_prints_one_document_and_fails_in_one_line(tmp_path: Path) -> None:
    job = optrace_job.Job(dp=3, pp=2, steps=12, slow=(1, 1, 1.8), micro_batches=4)
    path = optrace_job.write(tmp_path, job.table(), job.meta())
    good = run_ingero("explain", "--json", "-d", str(path))
    assert good.returncode == 0
    assert ranks(one_document(good.stdout)) == [job.rank(1, 1)]
    path.write_bytes(path.read_bytes()[:-100])
    bad = run_ingero("explain", "--json", "-d", str(path))
    assert bad.returncode == 1
    assert set(json.loads(bad.stdout)) == {"error"}
    assert bad.stderr.startswith("ingero: ")
    assert "Traceback" not in bad.stderr
    wrong = run_ingero("explain", "--json", "--nonsense")
    assert (wrong.returncode, wrong.stdout) == (2, "")


def test_warnings_are_data_in_what_a_query_prints_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = optrace_job.Job(steps=2)
    path = optrace_job.write(tmp_path, job.table(), job.meta())
    assert main(["query", "-d", str(path), "--json", "SELECT count(*) AS n FROM events WHERE rank = 0"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"][0][0] > 0
    assert any("names no hosts" in warning for warning in said["warnings"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-d", "nowhere.duckdb"], "does not exist"),
        (["-d", "."], "holds nothing that can be imported"),
        (["-d", "~nobody-of-this-name/x"], "home"),
        ([], "no local server is running"),
    ],
)
def test_failures_are_one_line_and_one_document(
    capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert main(["explain", "--json", *flags]) == 1
    out, err = capsys.readouterr()
    assert words in json.loads(out)["error"]
    assert err.count("\n") == 1


def test_a_window_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stored(tmp_path / "x.duckdb", Training(steps=3))
    assert main(["explain", "-d", str(path), "--json", "--window", "yesterday-ish"]) == 1
    assert "accepted are" in json.loads(capsys.readouterr().out)["error"]


def test_a_choice_of_job_cluster_communicator_and_window(tmp_path: Path, explain: Explain) -> None:
    path = stored(tmp_path / "x.duckdb", Training(job="slow", late_ms={2: 40}))
    stored(path, Training(job="stuck", node="b", cluster="c2", comm="bbbbbbbbbbbbbbbb", stops=(1, 20)))
    assert explain(path)["job_id"] == "stuck"
    for flags in (["--job", "slow"], ["--cluster", "c1"], ["--comm", "5a17c0de00b1a5ed"]):
        said = explain(path, *flags)
        assert (said["job_id"], ranks(said)) == ("slow", [2])
    assert explain(path, "--job", "slow", "--window", "2026-11-30T12:00Z/2026-11-30T12:00:02Z")["verdict"] == "healthy"
    assert "existing: c1, c2" in explain(path, "--cluster", "c3")["summary"]


def test_a_database_is_not_changed(tmp_path: Path, explain: Explain) -> None:
    path = stored(tmp_path / "x.duckdb", Training(late_ms={2: 40}))
    before = path.read_bytes()
    explain(path)
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_an_answer_for_which_the_disk_has_no_room_is_a_failure(tmp_path: Path) -> None:
    path = stored(tmp_path / "x.duckdb", Training(late_ms={2: 40}))
    for question in (["explain", "-d", str(path)], ["query", "-d", str(path), "SELECT 1"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run([*INGERO, *question], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "ingero: cannot write the answer: No space left on device\n")


# The server


def test_a_database_that_a_server_owns_is_explained_by_it_under_every_name(
    tmp_path: Path, run_server: RunServer, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path / "events.duckdb", Training(late_ms={2: 40}))
    (tmp_path / "alias.duckdb").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    with run_server(db_path=str(path)):
        for name in (path, tmp_path / "alias.duckdb", Path("events.duckdb"), Path("./alias.duckdb"), None):
            assert ranks(explain(name)) == [2]
        assert explain(None, "--job", "other")["row_count"] == 0
        assert explain(None, "--cluster", "c1")["verdict"] == "straggler"
        assert explain(None, "--plot")["plot"]


def posted(url: str, body: bytes, content_type: str = "application/json") -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{url}/api/v1/explain", body, {"Content-Type": content_type})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.loads(response.read(), parse_constant=_not_json)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_the_api_answers_and_refuses(tmp_path: Path, run_server: RunServer) -> None:
    path = stored(tmp_path / "events.duckdb", Training(late_ms={2: 40}))
    with run_server(db_path=str(path)) as server:
        nothing = {"window": None, "cluster_id": None, "job_id": "null", "comm_id": "", "include_plot": None}
        for asked in ({}, nothing, {"include_plot": "false"}):
            status, said = posted(server.url, json.dumps(asked).encode())
            assert status == 200
            assert ranks(said["structured"]) == [2]
            assert said["text"].startswith("verdict: straggler")
            assert "plot" not in said["structured"]
        assert "plot" in posted(server.url, b'{"include_plot": true}')[1]["structured"]
        for body, content_type, words in (
            (b"{}", "text/plain", "send Content-Type: application/json"),
            (b"{", "application/json", "the body is not JSON"),
            (b"[1]", "application/json", "not a JSON object"),
            (b'{"jobid": "x"}', "application/json", "did you mean job_id"),
            (b'{"window": "soon"}', "application/json", "accepted are"),
            (b'{"include_plot": "perhaps"}', "application/json", "true or false"),
            (b"[" * 100_000, "application/json", "the body is not JSON"),
            (b" " * (1 << 20) + b"{}", "application/json", "larger than"),
        ):
            status, said = posted(server.url, body, content_type)
            assert (status, said["code"]) == (400, "bad_request")
            assert words in said["error"]


def test_a_generated_case_through_a_file(tmp_path: Path, explain: Explain) -> None:
    case = generate("F1", 4, 10.0, "kernel")
    path = tmp_path / "x.duckdb"
    with open_store(path) as store:
        put_case(store, case)
    assert ranks(explain(path)) == list(case.truth.culprits)


def test_two_files_are_compared_and_two_windows_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = stored(tmp_path / "good.duckdb", Training()), stored(tmp_path / "bad.duckdb", Training(late_ms={2: 40}))
    assert main(["explain", "--compare", str(good), str(bad), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["id"] for one in said["ranks"]} == {0, 1, 2, 3}
    assert (said["before"]["verdict"], said["after"]["verdict"]) == ("healthy", "straggler")
    half = NOON + 10 * 200 * MS
    windows = [f"{NOON}-{half}", f"{half}-{half + 10**10}"]
    assert main(["explain", "-d", str(bad), "--compare", *windows]) == 0
    assert "after: straggler" in capsys.readouterr().out


def test_two_windows_of_a_running_server_are_compared(
    run_server: RunServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = stored(tmp_path / "events.duckdb", Training(late_ms={2: 40}))
    half = NOON + 10 * 200 * MS
    windows = [f"{NOON}-{half}", f"{half}-{half + 10**10}"]
    with run_server(db_path=str(database)):
        assert main(["explain", "-d", str(database), "--compare", *windows, "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["after"]["verdict"], said["after"]["culprits"]) == ("straggler", [2])
        assert main(["explain", "-d", str(database), "--compare", "yesterday", windows[1]]) == 1
    assert "14:30-14:35" in capsys.readouterr().err


def test_what_does_not_go_with_compare_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--compare", "all", "all", "--window", "5m"]) == 1
    assert "--compare names two windows" in capsys.readouterr().err
