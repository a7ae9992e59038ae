"""A database or a file of any known format, opened for one question; nothing is written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2

from ingero_mcp.cells import text
from ingero_mcp.cli.import_file import found_files, put
from ingero_mcp.errors import ConfigError, ImportFileError, StoreError
from ingero_mcp.importers.imported import Names
from ingero_mcp.importers.registry import open_file
from ingero_mcp.limits import StoreLimits
from ingero_mcp.store import Store, open_store
from ingero_mcp.tokens import read_token

_MOST_IN_MEMORY: Final = 3_000_000
_DUCKDB_MARK: Final = slice(8, 12), b"DUCK"

Said = TypeVar("Said")


def path_of(name: str) -> Path:
    """The path of a file as a person wrote it; ConfigError for the home of nobody."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{name}: {error}") from error


@contextmanager
def opened(path: Path, names: Names, warnings: list[str], limits: StoreLimits | None = None) -> Iterator[Store]:
    """The store of a file: ours as it is (within `limits`), what can be imported in memory.

    StoreLocked if a server owns it.
    What is odd about an imported file is said on stderr, and added to `warnings`.
    """
    if is_database(path):
        with open_store(path, limits=limits, read_only=True) as store:
            yield store
        return
    with open_store(None) as store:
        _read_into(store, path, names, warnings)
        yield store


def is_database(path: Path) -> bool:
    """Whether the file is a database of ours, or is not there to be anything else. ImportFileError if it is no file
    that can be read."""
    if not path.exists():
        return True
    place, mark = _DUCKDB_MARK
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(place.stop)[place] == mark
    except OSError as error:
        raise ImportFileError(f"cannot read {path}: {error.strerror}") from error


def _read_into(store: Store, path: Path, names: Names, warnings: list[str]) -> None:
    files = found_files([path]) if path.is_dir() else [path]
    reads = [open_file(file, names) for file in files]
    if (rows := sum(read.rows for read in reads)) > _MOST_IN_MEMORY:
        raise ImportFileError(
            f"{path} holds {rows} events, more than are read into memory ({_MOST_IN_MEMORY}); import it first: "
            f"ingero import {path} -d events.duckdb"
        )
    for file, read in zip(files, reads, strict=True):
        for warning in read.warnings:
            warnings.append(f"{text(str(file))}: {warning}")
            print(f"ingero: {warnings[-1]}", file=sys.stderr)
        put(read, store)


def interruptible(work: Callable[[Callable[[Callable[[], None]], None]], Said]) -> Said:
    """Do the work in a thread of its own, so that Ctrl-C is heard while the engine is at work.

    `work` is given a function to which it tells how to interrupt it.
    """
    interrupts: list[Callable[[], None]] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work, interrupts.append)
        try:
            return running.result()
        except KeyboardInterrupt:
            for interrupt in interrupts:
                interrupt()
            raise


def ask(url: str, token_file: str, path: str, asked: dict[str, Any], needed: set[str]) -> dict[str, Any]:
    """What the server at `url` answers to a POST; StoreError if it does not, or not with the `needed` fields."""
    headers = {"Authorization": f"Bearer {read_token(Path(token_file))}"} if token_file else {}
    try:
        response = httpx2.post(f"{url}{path}", json=asked, headers=headers, timeout=60.0)
        answer = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise StoreError(f"the server at {url} does not answer: {error}") from error
    if response.status_code != 200 or not isinstance(answer, dict) or not needed <= answer.keys():
        detail = answer.get("error") if isinstance(answer, dict) else None
        raise StoreError(str(detail or f"the server at {url} answered {response.status_code}"))
    return answer
