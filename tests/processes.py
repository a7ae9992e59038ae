"""`ingero serve` as a process of its own, for tests that kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

INGERO = (sys.executable, "-m", "ingero_mcp.cli.main")


def run_ingero(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    return subprocess.run([*INGERO, *arguments], capture_output=True, text=True, timeout=120, check=False, **options)


@dataclass
class ServerProcess:
    """A running `ingero serve`; killed at the end of the `with` block if it still runs."""

    process: subprocess.Popen[str]
    otlp_addr: str
    url: str

    @classmethod
    def start(cls, db_path: Path, *flags: str) -> ServerProcess:
        """Start it on free ports (unless `flags` say otherwise) and wait for its start-up line."""
        command: Sequence[str] = [
            *INGERO,
            "serve",
            "--json",
            f"--db-path={db_path}",
            "--otlp-addr=127.0.0.1:0",
            "--otlp-http-addr=127.0.0.1:0",
            "--http-addr=127.0.0.1:0",
            *flags,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _, errors = process.communicate(timeout=30)
            raise AssertionError(f"the server did not start: {errors}")
        started = json.loads(line)
        return cls(process, started["otlp_addr"], started["url"])

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self._signal(signal.SIGTERM)
        return self.process.returncode

    def _signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.communicate(timeout=30)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
