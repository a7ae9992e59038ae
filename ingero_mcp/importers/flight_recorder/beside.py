"""When a dump was taken that does not say it: one of a recorder without entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ingero_mcp.importers.flight_recorder.document import load, mismatch_of
from ingero_mcp.importers.flight_recorder.dump import latest_time_ns
from ingero_mcp.importers.flight_recorder.fields import EARLIEST_NS

_MOST_FILES: Final = 64
_MOST_BYTES: Final = 2 << 20
_LARGEST: Final = 16 << 20


def time_beside_ns(path: Path) -> tuple[int, str]:
    """The latest time of the dumps beside `path`, since all ranks are dumped together, else the time of the file; and
    where that is, in words. A file that was copied can have a time of much later, and a window over the job would
    have to reach there."""
    times = [time for beside in _dumps_beside(path) for time in _times(beside)]
    if times:
        return max(times), "at the latest time of the dumps beside them"
    return max(path.stat().st_mtime_ns, EARLIEST_NS), "where their file was changed last"


def _dumps_beside(path: Path) -> Iterator[Path]:
    """Files that look like dumps too: one, and more if they are small. Those with a name of the same length first."""
    try:
        names = sorted(other.name for other in path.parent.iterdir() if other.name != path.name)
    except OSError:
        return
    names.sort(key=lambda name: len(name) != len(path.name))
    left = _MOST_BYTES
    for name in names[:_MOST_FILES]:
        beside = path.parent / name
        size = _size_of_dump(beside)
        if left > 0 and 0 < size <= _LARGEST:
            left -= size
            yield beside


def _size_of_dump(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() and not mismatch_of(path) else 0
    except OSError:
        return 0


def _times(path: Path) -> list[int]:
    try:
        times = [latest_time_ns(dump) for _, dump in load(path.read_bytes()).dumps]
    except (OSError, ValueError):
        return []
    return [time for time in times if time is not None]
