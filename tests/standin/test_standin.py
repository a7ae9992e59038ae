"""The stand-ins are what the tests of the probes rest on: right sums, true asynchrony, faults where and what they say.

Times are compared with one another within a run, with medians over ranks or steps: a busy machine is late everywhere.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest

from . import exercise
from .build import DEFAULT_FOLDER, Standin, build, why_not
from .job import TrainingJob, Truth, run_job

pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")

RANK, FAULT_MS = 5, 300
FAULTY = ("--steps=8", f"--rank={RANK}", "--every=4", f"--fault-ms={FAULT_MS}")


@pytest.fixture(scope="session")
def standin() -> Standin:
    return build(DEFAULT_FOLDER)


def run_with_fault(standin: Standin, fault: str, **env: str) -> Truth:
    truth = run_job(standin, *FAULTY, f"--fault={fault}", "--timings", env=env)
    assert truth.exit_code == 0, truth.errors
    assert list(truth.faults) == [3, 7]
    return truth


@pytest.mark.parametrize(
    ("flags", "sums"),
    [
        (("--ranks=1",), 6),
        (("--ranks=2",), 12),
        (("--ranks=8",), 48),
        (("--ranks=2", "--floats=100003"), 12),  # several rounds per collective
        (("--ranks=8", "--comms=dp-tp"), 3 * 48),
        (("--ranks=8", "--comms=dp-tp", "--comm-init=id"), 3 * 48),
        (("--ranks=4", "--comms=pp"), 24 + 18),
    ],
)
def test_sums_are_right(standin: Standin, flags: tuple[str, ...], sums: int) -> None:
    truth = run_job(standin, "--steps=6", *flags)
    assert truth.exit_code == 0, truth.errors
    assert truth.end == {"event": "end", "sums_checked": sums, "sums_wrong": 0, "failed": [], "ok": True}
    assert all(truth.calls(rank)["cudaStreamSynchronize"] == 6 for rank in range(len(truth.pids)))


def test_a_wrong_sum_fails_the_job(standin: Standin) -> None:
    truth = run_job(standin, "--ranks=2", "--steps=4", "--fault=corrupt", "--rank=1", "--every=2")
    assert truth.exit_code == 1
    assert truth.end["sums_wrong"] == 4  # two steps, seen by both ranks
    assert truth.end["failed"] == [{"rank": 0, "exit": 3}, {"rank": 1, "exit": 3}]


@pytest.mark.parametrize("fault", ["sleep", "cpu", "stop", "contention", "alloc"])
def test_a_fault_makes_that_rank_late_in_those_steps(standin: Standin, fault: str) -> None:
    truth = run_with_fault(standin, fault)
    for step in truth.steps:
        if step.step in truth.faults:
            assert truth.faults[step.step] >= FAULT_MS * 0.95
            assert step.lateness_ms(RANK) >= FAULT_MS / 4
            assert (step.cpu_ns[RANK] / 1e6 >= FAULT_MS * 0.9) == (fault == "cpu")
            if fault == "contention" and Path("/proc/self/schedstat").exists():
                assert step.runq_ns[RANK] / 1e6 >= FAULT_MS / 2
    assert median(step.lateness_ms(RANK) for step in truth.steps if step.step not in truth.faults) < FAULT_MS / 4


def test_the_host_returns_at_once_and_waits_in_the_synchronize(standin: Standin) -> None:
    truth = run_with_fault(standin, "sleep")
    for step in (truth.steps[number] for number in truth.faults):
        assert step.call_ms(RANK) < FAULT_MS / 10
        assert step.sync_ms(RANK) > FAULT_MS / 2


def test_the_blocking_switch_waits_in_the_call(standin: Standin) -> None:
    truth = run_with_fault(standin, "sleep", STANDIN_BLOCKING="1")
    for step in (truth.steps[number] for number in truth.faults):
        assert step.call_ms(RANK) > FAULT_MS / 2
        assert step.sync_ms(RANK) < FAULT_MS / 2


def test_nobody_waits_for_a_dead_rank_longer_than_the_timeout(standin: Standin) -> None:
    env = {"STANDIN_TIMEOUT_MS": "1500"}
    truth = run_job(standin, "--steps=3", "--fault=die", "--every=3", env=env)  # run_job itself has a timeout
    assert truth.exit_code == 1
    failed = {line["rank"]: line["signal"] for line in truth.end["failed"]}
    assert failed == {rank: 9 if rank == RANK else 6 for rank in range(8)}
    assert truth.errors.count(f"timed out waiting for its peers; not in this round: {RANK}\n") == 7


def test_calls_mode_calls_each_function_so_many_times(standin: Standin) -> None:
    truth = run_job(standin, "--calls=23")
    assert truth.exit_code == 0, truth.errors
    calls = truth.calls(0)
    assert calls.pop("ncclGetUniqueId") == 46
    assert set(calls.values()) == {23}
    assert len(truth.pids) == 1
    assert set(calls) | {"ncclGetUniqueId"} == exported(standin.libnccl, "nccl") | exported(standin.libcudart, "cuda")


def exported(library: Path, prefix: str) -> set[str]:
    """Names in the string tables, where `ncclX` is the tail of `pncclX`; good enough for libraries of our own."""
    names = re.findall(rf"\0p?({prefix}[A-Z][A-Za-z]+)(?=\0)".encode(), library.read_bytes())
    return {name.decode() for name in names}


def test_symbols_of_cudart_carry_the_soname_as_version(standin: Standin) -> None:
    libc = ctypes.CDLL(None)
    libc.dlvsym.restype = ctypes.c_void_p
    library = ctypes.CDLL(str(standin.libcudart))
    for name in exported(standin.libcudart, "cuda"):
        assert libc.dlvsym(ctypes.c_void_p(library._handle), name.encode(), b"libcudart.so.12"), name


def test_ranks_wait_with_the_libraries_mapped_and_their_rank_in_the_environment(
    standin: Standin, tmp_path: Path
) -> None:
    start = tmp_path / "start"
    with TrainingJob(standin, "--ranks=2", "--steps=2", "--job=llama", f"--wait-for={start}") as job:
        pids = job.wait_for_start()
        for rank, pid in enumerate(pids):
            environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            expected = {f"RANK={rank}", f"LOCAL_RANK={rank}", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=llama"}
            assert expected <= {entry.decode() for entry in environ}
            maps = Path(f"/proc/{pid}/maps").read_text()
            assert str(standin.libnccl) in maps
            assert str(standin.libcudart) in maps
            assert Path(f"/proc/{pid}/comm").read_text() == "train\n"
        start.touch()
        truth = job.finish()
    assert truth.exit_code == 0, truth.errors
    assert truth.pids == pids
    assert len(truth.of("communicator")[0]["unique_id"]) == 256


@pytest.mark.parametrize("fault", ["none", "contention"])
def test_nothing_outlives_a_killed_job(standin: Standin, tmp_path: Path, fault: str) -> None:
    never = tmp_path / "never"
    with TrainingJob(standin, "--ranks=3", "--rank=1", f"--fault={fault}", f"--wait-for={never}") as job:
        job.wait_for_start()
        started = children_of(job.process.pid)
        assert len(started) == (3 if fault == "none" else 6)
        os.kill(job.process.pid, 9)
        deadline = time.monotonic() + 20
        while any(is_alive(pid) for pid in started):
            assert time.monotonic() < deadline, started
            time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """A zombie is not: nobody may be there to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("scenario", [name for name in exercise.SCENARIOS if name != "mismatch"])
def test_three_ranks_by_ctypes(standin: Standin, scenario: str) -> None:
    result = run_exercise(standin, scenario)
    assert result.returncode == 0, result.stderr


def test_ranks_that_disagree_are_told_so(standin: Standin) -> None:
    result = run_exercise(standin, "mismatch")
    assert result.returncode == 1
    assert "ncclAllReduce: rank 1 called ncclAllReduce with count 2, type 7" in result.stderr


def run_exercise(standin: Standin, scenario: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, exercise.__file__, str(standin.folder), scenario]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
