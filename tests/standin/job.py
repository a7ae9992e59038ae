"""The training job on the stand-in libraries, run from a test, and the truth it prints about itself."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Any

from .build import Standin

TIMEOUT = 60.0


@dataclass(frozen=True)
class Step:
    """One step: a value per rank. Times are CLOCK_MONOTONIC; `cpu_ns` and `runq_ns` (0 where the kernel does not
    count it) are the main thread's since the entry of the step before."""

    step: int
    enter_ns: tuple[int, ...]
    returned_ns: tuple[int, ...]
    synced_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    runq_ns: tuple[int, ...]

    def lateness_ms(self, rank: int) -> float:
        """How much later than its peers it called the all-reduce; a single peer that was held up does not count."""
        return (self.enter_ns[rank] - median(_others(self.enter_ns, rank))) / 1e6

    def call_ms(self, rank: int) -> float:
        """How long the all-reduce kept the hosts of all but `rank`."""
        return median(b - a for a, b in _pairs(self.enter_ns, self.returned_ns, rank)) / 1e6

    def sync_ms(self, rank: int) -> float:
        """How long all but `rank` then waited for the stream."""
        return median(b - a for a, b in _pairs(self.returned_ns, self.synced_ns, rank)) / 1e6


def _others(values: tuple[int, ...], rank: int) -> list[int]:
    return [value for other, value in enumerate(values) if other != rank]


def _pairs(starts: tuple[int, ...], ends: tuple[int, ...], rank: int) -> list[tuple[int, int]]:
    return list(zip(_others(starts, rank), _others(ends, rank), strict=True))


@dataclass(frozen=True)
class Truth:
    """What a job printed until its end."""

    exit_code: int
    errors: str
    lines: tuple[dict[str, Any], ...]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    @property
    def pids(self) -> list[int]:
        return list(self.of("start")[0]["pids"])

    @property
    def end(self) -> dict[str, Any]:
        return self.of("end")[0]

    @property
    def faults(self) -> dict[int, float]:
        """Step -> how long the fault took, in ms."""
        return {line["step"]: line["ms"] for line in self.of("fault")}

    @property
    def steps(self) -> list[Step]:
        """Only of a job with --timings."""
        names = ("enter_ns", "returned_ns", "synced_ns", "cpu_ns", "runq_ns")
        return [Step(line["step"], *(tuple(line[name]) for name in names)) for line in self.of("step")]

    def calls(self, rank: int) -> dict[str, int]:
        """Function -> how often the program of that rank called it."""
        return dict(self.of("calls")[rank]["calls"])


class TrainingJob:
    """`with TrainingJob(standin, "--ranks=2") as job:` starts it, and kills it at the end if it still runs."""

    def __init__(self, standin: Standin, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [standin.train, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._printed = ""

    def wait_for_start(self) -> list[int]:
        """The pids by rank, once all of them have mapped the libraries."""
        assert self.process.stdout is not None
        self._printed = self.process.stdout.readline()
        return list(json.loads(self._printed)["pids"])

    def finish(self) -> Truth:
        printed, errors = self.process.communicate(timeout=TIMEOUT)
        lines = (self._printed + printed).splitlines()
        return Truth(self.process.returncode, errors, tuple(json.loads(line) for line in lines))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT)

    def __enter__(self) -> TrainingJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def run_job(standin: Standin, *flags: str, env: Mapping[str, str] | None = None) -> Truth:
    """A whole job."""
    with TrainingJob(standin, *flags, env=env) as job:
        return job.finish()
