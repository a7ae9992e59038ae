"""Real processes, real probes: what the kernel side counts is what the processes did."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ingero_probes.elf_symbols import read_functions
from tests.conftest import RunServer
from tests.probes.tracing import (
    Tracer,
    explained,
    first_byte,
    let_go,
    query,
    times_off_cpu,
    wait_until,
    with_pids,
)
from tests.standin.build import Standin
from tests.standin.job import TrainingJob, Truth

pytestmark = pytest.mark.root

RANKS, STEPS, CULPRIT, EVERY, FAULT_MS = 8, 56, 5, 14, 290
JOB = (f"--ranks={RANKS}", f"--steps={STEPS}", f"--rank={CULPRIT}", f"--every={EVERY}", f"--fault-ms={FAULT_MS}")
PLANTED = [13, 27, 41, 55]
LATE_MS = 120
A_LITTLE_MS = 5.0
BREAKPOINT = 0xCC
MS = 1_000_000
CAUSES = {
    "sleep": "data_loader",  # blocked, and nothing says why
    "cpu": "gc_pause",  # on a CPU, and nothing is launched
    "stop": "host_hang",
    "contention": "cpu_contention",
    "alloc": "allocator_retry",
}

# Medians of nanoseconds since 1970 are beyond the digits of a double, hence the base.
LATE_STEPS = f"""
    WITH entries AS (
        SELECT step, coll_seq, rank, cpu_ns, blocked_ns, runq_ns,
               timestamp_ns - (SELECT min(timestamp_ns) FROM events WHERE metric_name = 'ncclAllReduce') AS enter_ns
        FROM events WHERE metric_name = 'ncclAllReduce'),
    ends AS (
        SELECT coll_seq, arg_max(rank, enter_ns) AS last, max(enter_ns) - median(enter_ns) AS late_ns
        FROM entries GROUP BY coll_seq),
    allocations AS (
        SELECT step, rank, sum(duration_ns) AS alloc_ns FROM events
        WHERE metric_name IN ('cudaMalloc', 'cudaFree') GROUP BY ALL),
    off AS (
        SELECT step, rank,
               sum(CASE WHEN attrs_json LIKE '%"sched.state":"stopped"%' THEN duration_ns ELSE 0 END) AS stopped_ns,
               sum(CASE WHEN attrs_json LIKE '%"sched.next_comm":"burner"%' THEN duration_ns ELSE 0 END) AS taken_ns
        FROM events WHERE metric_name = 'sched.offcpu' GROUP BY ALL)
    SELECT entries.step, entries.rank,
           CASE WHEN alloc_ns > 2e8 THEN 'alloc' WHEN cpu_ns > 2e8 THEN 'cpu' WHEN stopped_ns > 2e8 THEN 'stop'
                WHEN blocked_ns > 2e8 THEN 'sleep' WHEN runq_ns > 2e8 AND taken_ns > 2e8 THEN 'contention' END AS fault
    FROM ends JOIN entries ON entries.coll_seq = ends.coll_seq AND entries.rank = ends.last
         LEFT JOIN allocations ON allocations.step = entries.step AND allocations.rank = entries.rank
         LEFT JOIN off ON off.step = entries.step AND off.rank = entries.rank
    WHERE late_ns > {LATE_MS}e6 AND ends.coll_seq > 0 ORDER BY entries.step
"""


def late_by_own_clock(truth: Truth) -> list[tuple[int, int]]:
    """Steps and ranks that were late as the job itself measured it."""
    late = []
    for step in truth.steps[1:]:
        last = max(range(RANKS), key=lambda rank: step.enter_ns[rank])
        if step.lateness_ms(last) > LATE_MS:
            late.append((step.step, last))
    return late


def trace_job(run_server: RunServer, standin: Standin, folder: Path, *flags: str) -> tuple[Truth, Path]:
    """A traced job and the database with its events."""
    folder.mkdir()
    database, go = folder / "events.duckdb", folder / "go"
    with (
        run_server(db_path=str(database)) as server,
        TrainingJob(standin, *flags, "--timings", f"--wait-for={go}") as job,
    ):
        pids = job.wait_for_start()
        with Tracer(server.otlp_addr, "node-1") as tracer:
            assert set(map(int, tracer.started["processes"])) >= set(pids)
            truth = let_go(job, go)
            tracer.stop()
    return truth, database


@pytest.mark.parametrize("fault", ["none", "sleep", "cpu", "stop", "contention", "alloc"])
def test_the_late_rank_and_its_fault_are_in_the_store(
    run_server: RunServer, standin: Standin, tmp_path: Path, fault: str
) -> None:
    planted = [] if fault == "none" else [(step, CULPRIT) for step in PLANTED]
    # Eight ranks on few CPUs, which others may use too: what counts is a run in which the job itself saw what was
    # planted, and nothing else.
    for attempt in range(5):
        truth, database = trace_job(run_server, standin, tmp_path / str(attempt), *JOB, f"--fault={fault}")
        if late_by_own_clock(truth) == planted:
            break
    else:
        pytest.fail("the machine is too busy: by its own clock the job was late elsewhere than planted, five times")
    assert query(database, LATE_STEPS) == [(step, rank, fault) for step, rank in planted]
    assert_whole(database, truth)
    assert_explained(database, truth, planted, fault)


def assert_explained(database: Path, truth: Truth, planted: list[tuple[int, int]], fault: str) -> None:
    """One call names the rank, its host, the steps, the period and the cause; and nobody in a healthy run."""
    said = explained(database)
    blamed = [(culprit["rank"], culprit["node_id"]) for culprit in said["culprits"]]
    if not planted:
        assert (said["verdict"], blamed) == ("healthy", []), said["summary"]
        return
    assert (said["verdict"], blamed) == ("straggler", [(CULPRIT, "node-1")]), said["summary"]
    affected = said["affected_steps"]["list"]
    assert set(affected) >= set(PLANTED)
    # Where others want the CPU as well it is a little late in further steps: then it was so by the job's own clock.
    assert all(truth.steps[step].lateness_ms(CULPRIT) > A_LITTLE_MS for step in set(affected) - set(PLANTED))
    assert said["period_steps"] == EVERY
    assert said["cause"] == CAUSES[fault], said
    # As late as it was, which is later than planted where others want the CPU as well.
    late_ms = median(truth.steps[step].lateness_ms(CULPRIT) for step in PLANTED)
    assert said["culprits"][0]["lateness_ms"] == pytest.approx(late_ms, rel=0.25)


def assert_whole(database: Path, truth: Truth) -> None:
    """Every collective of every rank is there once, numbered, with its step and where the time went."""
    collectives = query(
        database,
        "SELECT coll_seq, count(*), count(DISTINCT rank), min(step), max(step), min(nranks), "
        "count(DISTINCT trace_id) FROM events WHERE metric_name = 'ncclAllReduce' "
        "GROUP BY comm_id, coll_seq ORDER BY 1",
    )
    assert collectives == [(seq, RANKS, RANKS, seq, seq, RANKS, 1) for seq in range(STEPS)]
    assert query(database, "SELECT count(*) FROM events WHERE metric_name = 'probe.gap'") == [(0,)]
    numbers = "SELECT count(*) = count(DISTINCT event_seq), max(event_seq) - min(event_seq) + 1 = count(*) FROM events"
    assert query(database, numbers) == [(True, True)]
    for rank in range(RANKS):
        assert_as_measured(database, truth, rank)


def assert_as_measured(database: Path, truth: Truth, rank: int) -> None:
    """The probe agrees with what the rank measured itself: from entry to entry nothing is unaccounted for."""
    sql = f"""
        SELECT timestamp_ns, cpu_ns, cpu_ns + blocked_ns + runq_ns + sync_ns FROM events
        WHERE metric_name = 'ncclAllReduce' AND rank = {rank} ORDER BY coll_seq"""
    rows: list[tuple[Any, ...]] = query(database, sql)
    # It reads the clock and then calls; now and then another thread gets the CPU in between.
    apart = [row[0] - step.enter_ns[rank] for row, step in zip(rows, truth.steps, strict=True)]
    assert median(apart) - min(apart) < MS
    for (before_ns, _, _), (entered_ns, cpu_ns, spent_ns), step in zip(rows, rows[1:], truth.steps[1:], strict=False):
        assert abs(spent_ns - (entered_ns - before_ns)) < MS
        assert cpu_ns < step.cpu_ns[rank] + 5 * MS


def test_two_daemons_with_clocks_apart_join_all_the_same(
    run_server: RunServer, standin: Standin, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with run_server() as server, TrainingJob(standin, *JOB, f"--wait-for={go}") as job:
        pids = job.wait_for_start()
        with (
            Tracer(server.otlp_addr, "host-a", with_pids(pids[:4])) as first,
            Tracer(server.otlp_addr, "host-b", with_pids(pids[4:]), "--test-clock-offset-ms=40") as second,
        ):
            let_go(job, go)
            first.stop()
            second.stop()
    database = tmp_path / "events.duckdb"
    ranks_of = (
        "SELECT node_id, list(DISTINCT rank ORDER BY rank) FROM events WHERE rank IS NOT NULL GROUP BY 1 ORDER BY 1"
    )
    assert query(database, ranks_of) == [("host-a", [0, 1, 2, 3]), ("host-b", [4, 5, 6, 7])]
    joined = """
        SELECT coll_seq, count(*), count(DISTINCT rank), count(DISTINCT node_id), min(step), max(step)
        FROM events WHERE metric_name = 'ncclAllReduce' GROUP BY comm_id, coll_seq ORDER BY 1"""
    assert query(database, joined) == [(seq, 8, 8, 2, seq, seq) for seq in range(STEPS)]
    # What all ranks leave together tells how far apart the clocks are: the end of the wait for the collective.
    apart = """
        WITH left_at AS (
            SELECT step, node_id, min(timestamp_ns + duration_ns) AS left_ns FROM events
            WHERE metric_name = 'cudaStreamSynchronize' GROUP BY ALL)
        SELECT median(b.left_ns - a.left_ns) FROM left_at AS a JOIN left_at AS b ON a.step = b.step
        WHERE a.node_id = 'host-a' AND b.node_id = 'host-b'"""
    assert query(database, apart)[0][0] / 1e6 == pytest.approx(40, abs=10)
    said = explained(database)
    assert (said["verdict"], said["culprits"]) == ("healthy", []), said["summary"]


@pytest.mark.parametrize("flags", [(), ("one process",)])
def test_23_calls_of_each_function_are_23_events_of_each(
    run_server: RunServer, standin: Standin, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    go = tmp_path / "go"
    with run_server() as server, TrainingJob(standin, "--calls=23", f"--wait-for={go}") as job:
        pids = job.wait_for_start()
        with Tracer(server.otlp_addr, "node-1", *([with_pids(pids)] if flags else [])) as tracer:
            truth = let_go(job, go)
            tracer.stop()
    traced = set(tracer.started["functions"])
    called = {name: calls for name, calls in truth.calls(0).items() if name in traced}
    assert set(called.values()) == {23} and called.keys() == traced
    counted = query(
        tmp_path / "events.duckdb",
        "SELECT metric_name, count(*) FROM events WHERE source IN ('nccl', 'cuda') GROUP BY 1",
    )
    assert dict(counted) == called


def test_kill_nine_leaves_the_job_running_and_no_probe_behind(
    run_server: RunServer, standin: Standin, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    address = read_functions(standin.libnccl, ["ncclAllReduce"])["ncclAllReduce"]
    with run_server() as server, TrainingJob(standin, "--ranks=2", "--steps=2000", f"--wait-for={go}") as job:
        pid, _ = job.wait_for_start()
        before = first_byte(pid, standin.libnccl, address)
        with Tracer(server.otlp_addr, "node-1") as tracer:
            assert first_byte(pid, standin.libnccl, address) == BREAKPOINT
            go.touch()
            wait_until(lambda: times_off_cpu(pid) > 100)
            tracer.kill()
            wait_until(lambda: first_byte(pid, standin.libnccl, address) == before != BREAKPOINT)
            assert job.process.poll() is None
            truth = job.finish()
    assert (truth.exit_code, truth.errors) == (0, "")
