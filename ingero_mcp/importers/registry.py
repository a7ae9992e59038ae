"""The formats that can be imported; which one a file has is judged by its content, never by its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.flight_recorder import recorder as flight_recorder
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.ingero import agent as ingero_agent
from ingero_mcp.importers.ingero import sqlite as ingero_sqlite
from ingero_mcp.importers.inspector import log as inspector
from ingero_mcp.importers.kineto import trace as kineto
from ingero_mcp.importers.optrace import layout as optrace_layout
from ingero_mcp.importers.optrace import trace as optrace
from ingero_mcp.importers.text import one_line
from ingero_mcp.importers.xpu_timer import scrape as xpu_timer


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file.

    `accepts` describes it in a line; `mismatch` says why a file is not of this kind, and is empty if it is.
    `companions` are files beside it that belong to it.
    """

    kind: str
    accepts: str
    mismatch: Callable[[Path], str]
    read: Callable[[Path, Names], Import]
    companions: Callable[[Path], tuple[Path, ...]]


FORMATS: Final[tuple[Format, ...]] = (
    Format(
        optrace.KIND,
        optrace.ACCEPTS,
        optrace.mismatch,
        lambda path, _names: optrace.read(path),
        optrace_layout.layout_paths,
    ),
    Format(
        ingero_agent.KIND,
        ingero_agent.ACCEPTS,
        ingero_agent.mismatch,
        ingero_agent.read,
        ingero_sqlite.companions,
    ),
    Format(kineto.KIND, kineto.ACCEPTS, kineto.mismatch, kineto.read, lambda _path: ()),
    Format(
        flight_recorder.KIND,
        flight_recorder.ACCEPTS,
        flight_recorder.mismatch,
        flight_recorder.read,
        lambda _path: (),
    ),
    Format(xpu_timer.KIND, xpu_timer.ACCEPTS, xpu_timer.mismatch, xpu_timer.read, lambda _path: ()),
    Format(inspector.KIND, inspector.ACCEPTS, inspector.mismatch, inspector.read, lambda _path: ()),
)


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder holds: `files` that can be imported, and why the others are `skipped`."""

    files: tuple[Path, ...]
    skipped: tuple[tuple[Path, str], ...]


def open_file(path: Path, names: Names | None = None) -> Import:
    """Read `path` with the first format that its content has.

    Raises ImportFileError, which says why each format was not it.
    """
    reasons = []
    for known in FORMATS:
        reason = known.mismatch(path)
        if not reason:
            return known.read(path, names or Names())
        reasons.append(f"{known.kind}: {reason} (accepted: {known.accepts})")
    raise ImportFileError(f"{one_line(path.name)} cannot be imported. {'. '.join(reasons)}")


def sort_out(folder: Path) -> Folder:
    """Find the files in `folder` and below that have a known format. Links are not followed.

    Raises ImportFileError if there is none.
    """
    files, skipped, companions = [], [], set[Path]()
    for path, reason in _below(folder):
        known = None if reason else next((known for known in FORMATS if not known.mismatch(path)), None)
        if known is None:
            skipped.append((path, reason or "of no known format"))
        else:
            files.append(path)
            companions.update(known.companions(path))
    if not files:
        accepted = "; ".join(f"{known.kind}: {known.accepts}" for known in FORMATS)
        raise ImportFileError(f"{one_line(folder)} holds nothing that can be imported. Accepted: {accepted}")
    return Folder(tuple(files), tuple((path, reason) for path, reason in skipped if path not in companions))


def _below(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every path below a folder that is not a folder, in order, and why it is not looked into (empty if it is)."""
    unreadable: list[OSError] = []
    for root, folders, names in os.walk(folder, onerror=unreadable.append):
        folders.sort()
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in sorted([*names, *links]):
            path = Path(root) / name
            if path.is_symlink():
                yield path, "a link, which is not followed"
            else:
                yield path, "" if path.is_file() else "not a file"
    for error in unreadable:
        yield Path(error.filename), one_line(error.strerror or error)
