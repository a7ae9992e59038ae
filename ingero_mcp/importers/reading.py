"""Reading a file that somebody names: what the system says about it becomes an ImportFileError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.text import one_line


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Within it an OSError is an ImportFileError that names the file; other errors pass."""
    try:
        yield
    except OSError as error:
        raise ImportFileError(f"{one_line(path.name)} cannot be read: {one_line(error)}") from error
