"""The rows of a trace as columns of numbers, because there may be millions of them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MAX_ROWS: Final = 10_000_000
"""A row takes 48 bytes until it is handed out."""

NONE: Final = -1

_MOST_SITES: Final = 100_000
_MOST_THREADS: Final = 1_000_000

Int64s = npt.NDArray[np.int64]
Thread = tuple[int | None, int | None]
"""Process and thread id."""


@dataclass(frozen=True, slots=True)
class Site:
    """What rows of one kind share: `attrs` are members of a JSON object, without its braces."""

    name: str
    source: str
    timing_source: str | None
    on_gpu: bool = False
    attrs: str = ""


@dataclass(frozen=True, slots=True)
class Detail:
    """What only rare rows have: collectives, communicators and steps. `attrs` as in `Site`."""

    attrs: str = ""
    comm_id: str | None = None
    coll_seq: int | None = None
    nranks: int | None = None
    step: int | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One row, times in nanoseconds as the trace counts them; `site` is a number from `Columns.site_number`."""

    site: int
    start_ns: int
    duration_ns: int | None
    thread: Thread | None = None
    stream: int | None = None
    bytes: int | None = None
    correlation: int | None = None
    detail: Detail | None = None


class Columns:
    """Rows in the order in which they were added, `NONE` for what is unknown.

    `sites`, `threads` and `details` are what the numbers in the columns site, thread and detail point to.
    """

    def __init__(self) -> None:
        self._wide = {name: array("q") for name in ("start_ns", "duration_ns", "bytes", "correlation")}
        self._narrow = {name: array("i") for name in ("site", "thread", "stream", "detail")}
        self.sites: list[Site] = []
        self.threads: list[Thread] = []
        self.details: list[Detail] = []
        self._site_numbers: dict[Site, int] = {}
        self._thread_numbers: dict[Thread, int] = {}

    def __len__(self) -> int:
        return len(self._wide["start_ns"])

    def site_number(self, site: Site) -> int:
        """The number of a site; ValueError for more of them than are read."""
        return _number(self._site_numbers, self.sites, site, _MOST_SITES, "names of kernels and calls")

    def add(self, row: Row) -> None:
        """Add a row. Raises ValueError for more rows or threads than are read."""
        if len(self) >= MAX_ROWS:
            raise ValueError(f"holds more than {MAX_ROWS} events to import; profile fewer steps in one trace")
        thread = detail = NONE
        if row.thread is not None:
            thread = _number(self._thread_numbers, self.threads, row.thread, _MOST_THREADS, "threads")
        if row.detail is not None:
            detail = len(self.details)
            self.details.append(row.detail)
        self._wide["start_ns"].append(row.start_ns)
        self._wide["duration_ns"].append(_or_none(row.duration_ns))
        self._wide["bytes"].append(_or_none(row.bytes))
        self._wide["correlation"].append(_or_none(row.correlation))
        self._narrow["site"].append(row.site)
        self._narrow["thread"].append(thread)
        self._narrow["stream"].append(_or_none(row.stream))
        self._narrow["detail"].append(detail)

    def numbers(self, name: str) -> Int64s:
        """A copy of a column."""
        if name in self._wide:
            return np.array(self._wide[name], dtype=np.int64)
        return np.array(self._narrow[name], dtype=np.int64)


def _or_none(value: int | None) -> int:
    return NONE if value is None else value


def _number(numbers: dict[Any, int], values: list[Any], value: Any, most: int, what: str) -> int:
    number = numbers.get(value)
    if number is None:
        if len(values) >= most:
            raise ValueError(f"holds more than {most} different {what}")
        number = numbers[value] = len(values)
        values.append(value)
    return number
