"""A file that is there whole or not at all: written under another name beside its own, and renamed at the end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from ingero_mcp.errors import ConfigError, DiskFull, StoreError

STDOUT: Final = "-"
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

Write = Callable[[bytes], None]


@contextmanager
def written(name: str) -> Iterator[Write]:
    """A function that writes to the file `name`, or to stdout for `-`.

    What was at `name` stays until the new file is complete, and for good if it never is. ConfigError if it cannot be
    written there, DiskFull if there is no room, StoreError if whoever reads stdout went away; nothing is left behind.
    """
    if name == STDOUT:
        # Not sys.stdout: what its buffer holds would fail a second time at the end of the process.
        with _told(name), open(1, "wb", buffering=0, closefd=False) as stream:
            yield _writer(stream)
        return
    path = Path(name)
    with _told(name):
        target = path.expanduser().resolve()
        if target.is_dir():
            raise ConfigError(f"{name} is a folder; give the name of a file in it")
        if target.exists() and not target.is_file():
            # A pipe or a device: there is nothing to put in its place.
            with target.open("wb", buffering=0) as stream:
                yield _writer(stream)
            return
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            with partial.open("xb", buffering=0) as stream:
                yield _writer(stream)
            partial.replace(target)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _writer(stream: BinaryIO) -> Write:
    def write(piece: bytes) -> None:
        left = memoryview(piece)
        while left:
            left = left[stream.write(left) :]

    return write


@contextmanager
def _told(name: str) -> Iterator[None]:
    """What the system refuses, as an error of ours: one line that says what and why."""
    where = "stdout" if name == STDOUT else name
    try:
        yield
    except BrokenPipeError as error:
        raise StoreError(f"cannot write to {where}: whoever read it went away") from error
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(f"cannot write {where}: {error.strerror}; nothing was left there") from error
        raise ConfigError(f"cannot write {where}: {error.strerror}") from error
    except RuntimeError as error:
        if "home" not in str(error):
            raise
        raise ConfigError(f"{name}: {error}") from error
