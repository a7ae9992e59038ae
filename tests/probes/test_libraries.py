"""Each file is attached to once, whoever maps it; confined processes are left alone where that is asked."""

from __future__ import annotations

import _ctypes
from pathlib import Path

import pytest

from ingero_mcp.errors import ProbeError
from ingero_probes import libraries
from ingero_probes.discover import Library, Process
from ingero_probes.functions import FUNCTIONS, Function
from ingero_probes.libraries import Libraries

FILE = Path(_ctypes.__file__)


class Attached:
    """Records what it is asked to attach to; fails for the processes in `refused`."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.fails = False

    def attach(self, library: Path, addresses: dict[str, int], pid: int = -1) -> list[Function]:
        assert library.samefile(FILE) and addresses == {"cudaMalloc": 1}
        self.calls.append(pid)
        if self.fails:
            raise ProbeError("no")
        return [one for one in FUNCTIONS if one.name == "cudaMalloc"]


@pytest.fixture(autouse=True)
def symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "read_functions", lambda path, names: {"cudaMalloc": 1})


def process(pid: int, *, confined: bool = False, start_ticks: int = 1, opened_by: Path = FILE) -> Process:
    return Process(pid, start_ticks, "p", {}, (Library("fe:00", 42, "/opt/libcudart.so", opened_by),), confined)


def test_a_file_is_attached_to_once_for_everybody() -> None:
    attached = Attached()
    covered = Libraries(attached)
    covered.cover([process(1), process(2)])
    covered.cover([process(3, confined=True)])
    assert attached.calls == [-1]
    coverage = covered.coverage([process(1)])
    assert (coverage.processes, coverage.libraries, coverage.functions) == (
        {1: "p"},
        ["/opt/libcudart.so"],
        ["cudaMalloc"],
    )
    assert "cudaFree" in coverage.not_found and "ncclSend" not in coverage.not_found


def test_confined_processes_are_spared_and_named() -> None:
    attached = Attached()
    covered = Libraries(attached, spare_confined=True)
    covered.cover([process(1), process(2, confined=True), process(3), process(1)])
    covered.cover([process(1, start_ticks=2)])
    assert attached.calls == [1, 3, 1]
    assert "process 2 is not traced" in covered.coverage([]).problems[0]


def test_a_process_that_is_gone_leaves_the_file_to_the_next_one() -> None:
    attached = Attached()
    covered = Libraries(attached)
    covered.cover([process(1, opened_by=Path("/proc/0/root/opt/libcudart.so")), process(2)])
    assert attached.calls == [-1]


def test_what_cannot_be_attached_to_is_a_problem_and_not_tried_again() -> None:
    attached = Attached()
    attached.fails = True
    covered = Libraries(attached)
    covered.cover([process(1), process(2)])
    assert attached.calls == [-1]
    assert covered.coverage([]).problems == ["/opt/libcudart.so: no"]
