"""A database file that appears whole or not at all, and that is never one of the files it is made from."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import duckdb

from ingero_mcp.errors import ConfigError, DiskFull, StoreError
from ingero_mcp.store.lock import FileLock

_LOGS: Final = (".wal", "-wal", "-shm", "-journal")
_BESIDE: Final = (*_LOGS, ".lock")
_FULL: Final = ("No space left", "File too large", "Disk quota exceeded", "max_temp_directory_size")
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def new_file(path: Path, *, overwrite: bool = False, sources: Sequence[Path] = ()) -> Iterator[Path]:
    """Gives a path to write to, in a folder of its own; what is there at the end of the block becomes `path`.

    If the block raises, nothing is left. ConfigError if `path` is one of the `sources` by whatever name, or belongs to
    one; StoreError if it exists and may not be overwritten; StoreLocked if it is in use; DiskFull, from the block too,
    when there is no room.
    """
    with explained(path), ExitStack() as held:
        target = path.resolve()
        _require_place(path, target)
        _require_other(path, target, sources)
        if target.exists():
            if not overwrite:
                raise StoreError(f"{path} exists; give another name, or replace it with --overwrite")
            held.callback(FileLock(target).withdraw)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", suffix=".partial", dir=target.parent))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        new = folder / "new.duckdb"
        yield new
        _require_whole(path, new)
        _sync(new)
        _put(new, target, overwrite=overwrite)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Within it what the system or DuckDB says about writing becomes an error of ours: DiskFull where that is why."""
    try:
        yield
    except (duckdb.Error, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if is_full or any(words in str(error) for words in _FULL):
            raise DiskFull(f"{path} was not written: the disk is full ({first})") from error
        raise StoreError(f"{path} was not written: {first}") from error


def _require_place(path: Path, target: Path) -> None:
    if not target.parent.is_dir():
        raise StoreError(f"{path}: the folder {target.parent} does not exist")
    if target.exists() and not target.is_file():
        raise StoreError(f"{path} is not a file; give the name of a database file")


def _require_other(path: Path, target: Path, sources: Sequence[Path]) -> None:
    """What is written over, or removed with it, must not be read from: files are the same if their inodes are."""
    touched = {_identity(each) for each in (target, *_beside(target, _LOGS)) if each.exists()}
    for source in sources:
        real = source.resolve()
        if _identity(real) in touched:
            raise ConfigError(f"{path} is {source}, which is read; give the output another name")
        if target in _beside(real, _BESIDE):
            raise ConfigError(f"{path} would be taken for a part of {source}, which is read; give it another name")


def _require_whole(path: Path, new: Path) -> None:
    # Whoever closes a database brings its log into it, and says nothing if that fails.
    if any(log.exists() and log.stat().st_size for log in _beside(new, _LOGS)):
        raise DiskFull(f"{path} was not written: not all of it could be brought into one file; is the disk full?")


def _beside(file: Path, endings: Sequence[str]) -> list[Path]:
    return [file.with_name(file.name + ending) for ending in endings]


def _identity(file: Path) -> tuple[int, int]:
    facts = file.stat()
    return facts.st_dev, facts.st_ino


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(new: Path, target: Path, *, overwrite: bool) -> None:
    """Give it its name. The log of a database that was there would be taken for its own: it goes first."""
    aside = [(log, new.parent / f"old{number}") for number, log in enumerate(_beside(target, _LOGS)) if log.exists()]
    moved: list[tuple[Path, Path]] = []
    try:
        for log, away in aside:
            log.rename(away)
            moved.append((log, away))
        if overwrite:
            new.replace(target)
        else:
            _name(new, target)
    except BaseException:
        for log, away in moved:
            away.rename(log)
        raise
    _sync(target.parent)


def _name(new: Path, target: Path) -> None:
    """Never over another file, even one that was made meanwhile."""
    try:
        target.hardlink_to(new)
    except FileExistsError:
        raise StoreError(f"{target} was made by somebody else meanwhile; give another name") from None
    except OSError as error:
        if error.errno not in _NO_LINKS or target.exists():
            raise
        new.replace(target)
