"""The lines of a log, each told apart: calls, statistics, and what cannot be used.

Until format v4.2 a record says itself whose it is. From v4.3 on only the record `dump_stats` does, which begins
a dump of one communicator and says how many records without context follow it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal

from ingero_mcp.importers.inspector.record import (
    COLLECTIVE,
    P2P,
    PERF,
    Call,
    Context,
    Json,
    count_of,
    read_call,
    read_context,
)

MAX_LINE: Final = 1 << 18
"""Bytes; a verbose record of 64 channels has less than a tenth of them."""

PROXY: Final = "proxy_trace"
_STATS: Final = "dump_stats"
_COUNTS: Final = {PERF[COLLECTIVE]: "coll_records", PERF[P2P]: "p2p_records", PROXY: "proxy_records"}
_DROPPED: Final = ("coll_dropped_since_last_dump", "p2p_dropped_since_last_dump")


@dataclass(frozen=True, slots=True)
class Note:
    """A line that is no call: `stats` with the number of records that Inspector had `dropped` before it could write
    them, a trace of a `proxy`, or a line that cannot be used: `bad`, or `cut` off at the end of the file."""

    kind: Literal["stats", "proxy", "bad", "cut"]
    why: str = ""
    dropped: int = 0


def read_lines(file: BinaryIO, length: int) -> Iterator[tuple[bytes, Call | Note]]:
    """The first `length` bytes of a log, line by line, and what each line is. Empty lines are nothing."""
    dump = _Dump()
    for line in _split(file, length):
        if not line.strip():
            continue
        try:
            yield line, dump.read(line)
        except ValueError as error:
            yield line, Note("bad" if line.endswith(b"\n") else "cut", str(error))


def parse(line: bytes) -> Json:
    """A line as a JSON object; raises ValueError."""
    if len(line) > MAX_LINE:
        raise ValueError(f"longer than {MAX_LINE} bytes")
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError("not JSON") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def is_inspectors(record: Json) -> bool:
    """Whether a record has the members that Inspector writes."""
    return "header" in record and "metadata" in record and any(key in record for key in (*_COUNTS, _STATS))


class _Dump:
    """The dump that is being read: its context, and how many records of it are still to come."""

    def __init__(self) -> None:
        self._context: Context | None = None
        self._left: Counter[str] = Counter()

    def read(self, line: bytes) -> Call | Note:
        """What the next line is; raises ValueError where it is nothing of use."""
        try:
            record = parse(line)
        except ValueError:
            # It may have begun another dump, whose records must not be put down to the communicator of this one.
            self._context = None
            raise
        if _STATS in record:
            return self._begin(record)
        kind = next((kind for kind in _COUNTS if kind in record), None)
        if kind is None:
            raise ValueError("neither an operation nor statistics")
        context = read_context(record) if "header" in record else self._next(kind)
        if kind == PROXY:
            return Note("proxy")
        return read_call(record, COLLECTIVE if kind == PERF[COLLECTIVE] else P2P, context)

    def _begin(self, record: Json) -> Note:
        self._context = None
        context, stats = read_context(record), record[_STATS]
        if not isinstance(stats, dict):
            raise ValueError("dump_stats is not an object")
        self._context = context
        self._left = Counter({kind: count_of(stats, key) for kind, key in _COUNTS.items()})
        return Note("stats", dropped=sum(count_of(stats, key) for key in _DROPPED))

    def _next(self, kind: str) -> Context:
        if self._context is None or not self._left[kind]:
            raise ValueError("does not say whose it is, and no dump_stats before it does")
        self._left[kind] -= 1
        return self._context


def _split(file: BinaryIO, length: int) -> Iterator[bytes]:
    """Lines with their ends; what is longer than a line may be, is cut to one that is just too long."""
    left = length
    while left > 0 and (line := file.readline(min(left, MAX_LINE + 1))):
        left -= len(line)
        rest = line
        while left > 0 and rest and not rest.endswith(b"\n"):
            rest = file.readline(min(left, MAX_LINE + 1))
            left -= len(rest)
        yield line if rest is line else line + rest[-1:]
