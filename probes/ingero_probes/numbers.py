"""The counter of a node's events, `ingero.event.seq`: it survives restarts, a kill -9 and the loss of its file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from ingero_mcp.clock import now_ns
from ingero_mcp.errors import ProbeError

_RESERVED_AT_ONCE: Final = 100_000


class EventNumbers:
    """Numbers for one node, from a file that one daemon at a time may hold.

    The file names the end of a reserved range, so that a daemon that is killed skips numbers rather than giving them
    twice. Without a file numbering begins at the microseconds since 1970: above whatever was given before.
    """

    def __init__(self, path: Path, node: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise ProbeError(
                f"another daemon numbers the events of node {node} ({path}); stop it, or give this one its own --node"
            ) from None
        saved = os.pread(self._file, 32, 0)
        self._next = int(saved) if saved.strip().isdigit() else now_ns() // 1000
        self._end = self._next

    def take(self) -> int:
        """The next number."""
        if self._next == self._end:
            self._end += _RESERVED_AT_ONCE
            # One short write at one place, of a fixed width: a reader finds the old number or the new one.
            os.pwrite(self._file, b"%020d\n" % self._end, 0)
        number = self._next
        self._next += 1
        return number

    def close(self) -> None:
        """Give back what was reserved and not used, and let another daemon have the file."""
        os.pwrite(self._file, b"%020d\n" % self._next, 0)
        os.close(self._file)
