"""Who owns a database file: a flock on a sidecar, `<db>.lock`.

DuckDB's own lock is not enough: it is a POSIX lock, dropped as soon as the owning process opens and closes the file
for any other reason (to hash it, to copy it). The sidecar is never opened by anything else.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from ingero_mcp.errors import StoreError, StoreLocked


class FileLock:
    """Held from construction to `release`. Raises StoreLocked, naming the owner's pid, if somebody else holds it.

    A `shared` lock keeps owners out and lets other readers in.
    """

    def __init__(self, database: Path, *, shared: bool = False) -> None:
        self._owns = not shared
        self._made = None if shared or _sidecar(database).exists() else _sidecar(database)
        self._fd: int | None = None
        fd = _open_shared(database) if shared else _open_owned(database)
        if fd is None:
            return
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(fd)
            os.close(fd)
            raise StoreLocked(str(database), *owner) from None
        self._fd = fd
        if self._owns:
            self.announce()

    def announce(self, url: str = "", token_file: str = "") -> None:
        """Write who owns the file, and where it answers, for those who find it locked."""
        if self._fd is not None:
            text = json.dumps({"pid": os.getpid(), "url": url, "token_file": token_file})
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)

    def release(self) -> None:
        """Let others in; may be called twice. The sidecar stays, since removing it would race with the next owner."""
        if self._fd is not None:
            if self._owns:
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def withdraw(self) -> None:
        """Let others in, and leave no sidecar beside a file that turned out not to be ours."""
        if self._made is not None:
            self._made.unlink(missing_ok=True)
        self.release()


def _sidecar(database: Path) -> Path:
    return database.with_name(database.name + ".lock")


def _open_owned(database: Path) -> int:
    try:
        # Others may read who the owner is; the lock itself is advisory anyway.
        return os.open(_sidecar(database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(f"cannot create {_sidecar(database)}: {error.strerror}") from error


def _open_shared(database: Path) -> int | None:
    """None where no owner has ever been: DuckDB's own lock then has to do."""
    try:
        return os.open(_sidecar(database), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _owner(fd: int) -> tuple[int, str, str]:
    # Written by another process, perhaps not completely: whatever cannot be read is unknown.
    try:
        owner = json.loads(os.pread(fd, 4096, 0))
        return int(owner["pid"]), str(owner["url"]), str(owner["token_file"])
    except (ValueError, KeyError, TypeError):
        return 0, "", ""
