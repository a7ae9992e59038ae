"""Communicators, point to point, threads, markers and calls that do not end, with real probes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ingero_mcp.errors import StoreLocked
from ingero_mcp.store import open_store
from tests.conftest import RunServer
from tests.probes.tracing import Tracer, let_go, query, wait_until, with_pids
from tests.probes.workload import PER_STEP, STEPS
from tests.processes import run_ingero
from tests.standin.build import Standin
from tests.standin.job import TrainingJob

pytestmark = pytest.mark.root

WORKLOAD = Path(__file__).parent / "workload.py"


@pytest.mark.parametrize("made_by", ["split", "id"])
def test_collectives_of_every_communicator_join(
    run_server: RunServer, standin: Standin, tmp_path: Path, made_by: str
) -> None:
    go = tmp_path / "go"
    flags = ("--ranks=8", "--steps=20", "--comms=dp-tp", f"--comm-init={made_by}", f"--wait-for={go}")
    with run_server() as server, TrainingJob(standin, *flags) as job:
        pids = job.wait_for_start()
        with Tracer(server.otlp_addr, "node-1", with_pids(pids)) as tracer:
            let_go(job, go)
            tracer.stop()
    # World: one all-reduce of 8 a step. Tensor parallel: four pairs. Data parallel: two groups of four, two calls.
    joined = """
        SELECT metric_name, ranks, count(DISTINCT comm_id), count(*) FROM (
            SELECT metric_name, comm_id, coll_seq, count(DISTINCT rank) AS ranks FROM events
            WHERE coll_seq IS NOT NULL GROUP BY ALL HAVING count(*) = count(DISTINCT rank))
        GROUP BY metric_name, ranks ORDER BY 1, 2"""
    assert query(tmp_path / "events.duckdb", joined) == [
        ("ncclAllGather", 4, 2, 2 * 20),
        ("ncclAllReduce", 2, 4, 4 * 20),
        ("ncclAllReduce", 8, 1, 20),
        ("ncclReduceScatter", 4, 2, 2 * 20),
    ]
    stepped = "SELECT count(DISTINCT step), count(*) FILTER (step IS NULL) FROM events WHERE coll_seq IS NOT NULL"
    # Of the first step only what comes after its world collective has a number: before it there is no period.
    assert query(tmp_path / "events.duckdb", stepped) == [(20, 8 * 3)]


def test_what_the_ring_buffer_could_not_hold_is_counted_and_told(
    run_server: RunServer, standin: Standin, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with run_server() as server, TrainingJob(standin, "--calls=1500", f"--wait-for={go}") as job:
        pids = job.wait_for_start()
        with Tracer(server.otlp_addr, "node-1", with_pids(pids)) as tracer:
            # Nobody reads while the job runs: 45,000 records for a buffer of 18,000.
            os.kill(tracer.process.pid, signal.SIGSTOP)
            truth = let_go(job, go)
            os.kill(tracer.process.pid, signal.SIGCONT)
            summary = tracer.stop(expect_losses=True)
    database = tmp_path / "events.duckdb"
    called = sum(calls for name, calls in truth.calls(0).items() if name in tracer.started["functions"])
    [(seen,)] = query(database, "SELECT count(*) FROM events WHERE source IN ('nccl', 'cuda')")
    assert 0 < called - seen <= summary["lost"]
    gaps = """
        SELECT sum(CAST(json_extract_string(attrs_json, '$."probe.lost_events"') AS BIGINT)),
               bool_and(json_extract_string(attrs_json, '$."probe.gap.end_ns"') >
                        json_extract_string(attrs_json, '$."probe.gap.start_ns"'))
        FROM events WHERE metric_name = 'probe.gap'"""
    assert query(database, gaps) == [(summary["lost"], True)]


def test_a_send_meets_its_receive(run_server: RunServer, standin: Standin, tmp_path: Path) -> None:
    go = tmp_path / "go"
    flags = ("--ranks=4", "--steps=20", "--comms=pp", f"--wait-for={go}")
    with run_server() as server, TrainingJob(standin, *flags) as job:
        pids = job.wait_for_start()
        with Tracer(server.otlp_addr, "node-1", with_pids(pids)) as tracer:
            let_go(job, go)
            tracer.stop()
    meeting = """
        WITH p2p AS (
            SELECT metric_name, comm_id, coll_seq, rank, bytes,
                   CAST(json_extract_string(attrs_json, '$."nccl.peer_rank"') AS INTEGER) AS peer
            FROM events WHERE metric_name IN ('ncclSend', 'ncclRecv'))
        SELECT s.rank, s.peer, count(*), min(s.coll_seq), max(s.coll_seq), bool_and(s.bytes = r.bytes)
        FROM p2p AS s JOIN p2p AS r
          ON s.comm_id = r.comm_id AND s.coll_seq = r.coll_seq AND s.rank = r.peer AND s.peer = r.rank
        WHERE s.metric_name = 'ncclSend' AND r.metric_name = 'ncclRecv' GROUP BY ALL ORDER BY 1"""
    assert query(tmp_path / "events.duckdb", meeting) == [(rank, rank + 1, 20, 0, 19, True) for rank in range(3)]


@pytest.fixture
def folder(standin: Standin, tmp_path: Path) -> Path:
    """The stand-in CUDA runtime beside a library with the step marker."""
    (tmp_path / "libcudart.so.12").write_bytes(standin.libcudart.read_bytes())
    source = 'void ingero_step(unsigned long step) { __asm__ volatile("" : : "r"(step)); }'
    command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libingero_marker.so"), "-xc", "-"]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)
    return tmp_path


def test_markers_name_the_steps_of_all_threads(run_server: RunServer, folder: Path) -> None:
    go = folder / "go"
    command = [sys.executable, str(WORKLOAD), str(folder), str(go)]
    with run_server() as server, subprocess.Popen(command, stdout=subprocess.PIPE) as workload:
        assert workload.stdout is not None and workload.stdout.readline() == b"ready\n"
        with Tracer(server.otlp_addr, "node-1", with_pids([workload.pid])) as tracer:
            go.touch()
            assert workload.wait(60) == 0
            tracer.stop()
    counted = "SELECT step, metric_name, count(*), count(DISTINCT tid) FROM events WHERE source = 'cuda' GROUP BY ALL"
    assert sorted(query(folder / "events.duckdb", counted)) == [
        (step, name, 2 * PER_STEP, 2) for step in range(100, 100 + STEPS) for name in ("cudaFree", "cudaMalloc")
    ]
    sources = "SELECT DISTINCT json_extract_string(attrs_json, '$.\"ingero.step_source\"') FROM events WHERE step > 0"
    assert query(folder / "events.duckdb", sources) == [("marker",)]


def test_a_call_that_does_not_end_is_told_while_it_runs(
    run_server: RunServer, standin: Standin, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    flags = ("--ranks=2", "--steps=40", "--fault=die", "--rank=1", "--every=20", f"--wait-for={go}")
    told = """
        SELECT rank, json_extract_string(attrs_json, '$."call.name"') AS name,
               json_extract_string(attrs_json, '$."call.span_id"') AS span_id
        FROM events WHERE metric_name = 'call.open'"""
    environment = {"STANDIN_TIMEOUT_MS": "60000"}
    with run_server() as server, TrainingJob(standin, *flags, env=environment) as job:
        pids = job.wait_for_start()
        with Tracer(server.otlp_addr, "node-1", with_pids(pids)) as tracer:
            go.touch()
            wait_until(lambda: "cudaStreamSynchronize" in run_ingero("query", "--json", told).stdout)
            job.kill()
            tracer.stop()
    database = tmp_path / "events.duckdb"
    [(rank, name, span_id)] = query(database, told)
    assert (rank, name) == (0, "cudaStreamSynchronize")
    # The span follows once, when the call ends: here with its process.
    ended = f"SELECT metric_name, status, duration_ns >= 10000000000 FROM events WHERE span_id = '{span_id}'"
    assert query(database, ended) == [("cudaStreamSynchronize", "error", True)]
    gone = "SELECT rank FROM events WHERE metric_name = 'process.exit' ORDER BY timestamp_ns"
    assert query(database, gone) == [(1,), (0,)]


def test_without_a_server_a_trace_brings_its_own_and_the_events_stay(
    standin: Standin, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("INGERO_OTLP_ADDR", "INGERO_OTLP_HTTP_ADDR", "INGERO_HTTP_ADDR"):
        monkeypatch.setenv(variable, "127.0.0.1:0")
    go = tmp_path / "go"
    with TrainingJob(standin, "--ranks=2", "--steps=5", f"--wait-for={go}") as job:
        pids = job.wait_for_start()
        with Tracer("", "node-1", with_pids(pids)) as tracer:
            let_go(job, go)
            summary = tracer.stop()
    assert summary["acknowledged"] > 0
    reduced = "SELECT rank, count(*) FROM events WHERE metric_name = 'ncclAllReduce' GROUP BY rank ORDER BY rank"
    wait_until(lambda: not is_owned(home / ".ingero" / "ingero.duckdb"))
    assert query(home / ".ingero" / "ingero.duckdb", reduced) == [(0, 5), (1, 5)]


def is_owned(path: Path) -> bool:
    try:
        open_store(path, read_only=True).close()
    except StoreLocked:
        return True
    return False
