"""The formats that can be imported; which one a file has is judged by its content, never by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers import optrace
from ingero_mcp.importers.imported import Import
from ingero_mcp.importers.text import one_line


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file.

    `accepts` describes it in a line; `mismatch` says why a file is not of this kind, and is empty if it is.
    """

    kind: str
    accepts: str
    mismatch: Callable[[Path], str]
    read: Callable[[Path], Import]


FORMATS: Final[tuple[Format, ...]] = (Format(optrace.KIND, optrace.ACCEPTS, optrace.mismatch, optrace.read),)


def open_file(path: Path) -> Import:
    """Read `path` with the first format that its content has.

    Raises ImportFileError, which says why each format was not it.
    """
    reasons = []
    for known in FORMATS:
        reason = known.mismatch(path)
        if not reason:
            return known.read(path)
        reasons.append(f"{known.kind}: {reason} (accepted: {known.accepts})")
    raise ImportFileError(f"{one_line(path.name)} cannot be imported. {'. '.join(reasons)}")
