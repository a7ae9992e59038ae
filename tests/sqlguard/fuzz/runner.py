"""The other end of the child: sends statements, notices when it dies or hangs, starts the next one."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.sqlguard.fuzz.bait import VARIABLE
from tests.sqlguard.fuzz.layers import Layers
from tests.sqlguard.fuzz.oracle import SPOILING, Examined, Fault, Kind

_ROOT = Path(__file__).resolve().parents[3]
_START_S = 60
_STUCK_S = 20
"""Many times a statement's time limit, and a machine's bad moments."""


class Runner:
    """One child at a time. A context manager: ends the child and removes the bait."""

    def __init__(self, on: Layers) -> None:
        self._on = on
        self._folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def examine(self, sql: str) -> Examined:
        """What becomes of `sql`. Death and hanging are faults; after them, as after any lasting harm, all is new."""
        pipe = self._pipe or self._start()
        pipe.send(sql)
        examined = self._received(pipe)
        if any(fault.kind in SPOILING for fault in examined.faults):
            self._end()
        return examined

    def _received(self, pipe: Connection) -> Examined:
        if not pipe.poll(_STUCK_S):
            return Examined(True, faults=(Fault(Kind.STUCK, f"no answer for {_STUCK_S} s"),))
        try:
            examined = pipe.recv()
        except (EOFError, ConnectionResetError):
            code = self._child.wait() if self._child else None
            return Examined(True, faults=(Fault(Kind.DEATH, f"exit status {code}"),))
        assert isinstance(examined, Examined)
        return examined

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        marker = secrets.token_hex(12)
        home = self._folder / marker
        home.mkdir()
        # Nothing is inherited but what Python needs: the environment is part of the bait.
        environment = {"PYTHONPATH": str(_ROOT), "PYTHONSAFEPATH": "1", "HOME": str(home), VARIABLE: marker}
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.sqlguard.fuzz.child", str(theirs.fileno()), str(home), *self._on],
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        self._pipe = Connection(ours.detach())
        if not self._pipe.poll(_START_S):
            raise OSError("the fuzzer's child does not start")
        self._pipe.recv()
        return self._pipe

    def _end(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._pipe = self._child = None
        for left in self._folder.iterdir():
            shutil.rmtree(left, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._folder.rmdir()
