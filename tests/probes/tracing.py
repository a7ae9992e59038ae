"""`ingero trace` as a process of its own, around a training job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from tests.processes import INGERO
from tests.standin.job import TrainingJob, Truth

TIMEOUT_S = 60.0


class Tracer:
    """`with Tracer(address, "node-1") as tracer:` runs a daemon; `started` is its start-up line."""

    def __init__(self, otlp_addr: str, node: str, *flags: str) -> None:
        command = [*INGERO, "trace", "--json", f"--otlp={otlp_addr}", f"--node={node}", "--cluster=test", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=TIMEOUT_S)[1]
        self.started: dict[str, Any] = json.loads(line)

    def stop(self, *, expect_losses: bool = False) -> dict[str, Any]:
        """SIGTERM; returns its summary. Everything must have been acknowledged, and nothing lost unless expected."""
        self.process.send_signal(signal.SIGTERM)
        printed, errors = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, errors
        summary: dict[str, Any] = json.loads(printed)
        assert (summary["lost"] > 0, summary["unsent"]) == (expect_losses, 0)
        assert summary["acknowledged"] == summary["events"]
        return summary

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate(timeout=TIMEOUT_S)

    def __enter__(self) -> Tracer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()


def with_pids(pids: Sequence[int]) -> str:
    """The flag that limits a daemon to these processes."""
    return "--pid=" + ",".join(map(str, pids))


def let_go(job: TrainingJob, go: Path) -> Truth:
    """Let a job that waits for this file run, to its end."""
    go.touch()
    truth = job.finish()
    assert truth.exit_code == 0, truth.errors
    return truth


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows from the database of a server that has stopped."""
    with open_store(path, read_only=True) as store:
        return store.query(check(sql), limit=100_000).rows


def explained(path: Path) -> dict[str, Any]:
    """What `ingero explain` says of the database of a server that has stopped."""
    done = subprocess.run([*INGERO, "explain", "-d", path, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def first_byte(pid: int, library: Path, address: int) -> int:
    """The byte at a function's first instruction, as that process would run it: 0xCC where a probe is."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split()
        if fields[-1] == str(library) and fields[2] == "00000000":
            base = int(fields[0].split("-")[0], 16)
            break
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return os.pread(memory, 1, base + address)[0]
    finally:
        os.close(memory)


def times_off_cpu(pid: int) -> int:
    """How often the process has waited for something so far: it grows while a job steps."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0


def wait_until(holds: Callable[[], bool]) -> None:
    """Return once it holds; fail when it takes too long."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
