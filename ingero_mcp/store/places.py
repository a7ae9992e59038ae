"""Which queries run: a few at once, the rest in order of arrival, and none while ingestion needs the room."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import StoreBusy

_log = logging.getLogger(__name__)
_REPEAT_S: Final = 0.02


class Place:
    """The right to run one query.

    `evicted` says that ingestion needed its memory, `is_stuck` that it was interrupted long ago and goes on.
    """

    def __init__(self) -> None:
        self.evicted = False
        self.is_stuck = False
        self._cursor: duckdb.DuckDBPyConnection | None = None

    def start(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """The query runs on this cursor."""
        self._cursor = cursor

    def interrupt(self) -> None:
        """Stop what runs here, if anything does; one that comes before the engine starts is lost, so repeat it."""
        cursor = self._cursor
        try:
            if cursor is not None:
                cursor.interrupt()
        except duckdb.Error as error:
            _log.debug("it ended this moment, and its cursor is closed: %s", error)


class Places:
    """At most `count` queries at once; who waits longest is next, and waits at most `wait_s`."""

    def __init__(self, count: int, wait_s: float) -> None:
        self._count = count
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._waiting: deque[Place] = deque()
        self._running: set[Place] = set()
        self._held = 0

    @property
    def is_busy(self) -> bool:
        """Whether a query runs."""
        return bool(self._running)

    def take(self) -> Place:
        """A place, to be given back with `leave`; StoreBusy when none came free in time."""
        place = Place()
        with self._changed:
            self._waiting.append(place)
            try:
                came = self._changed.wait_for(lambda: self._is_next(place), self._wait_s)
            finally:
                self._waiting.remove(place)
                self._changed.notify_all()
            if not came:
                raise StoreBusy(
                    f"{len(self._running)} queries are running and none ended within {self._wait_s:.0f} s; this one "
                    "did not start. Ask again, or fewer at a time"
                )
            self._running.add(place)
        return place

    def leave(self, place: Place) -> None:
        """Give a place to the next in line."""
        with self._changed:
            self._running.discard(place)
            self._changed.notify_all()

    @contextmanager
    def cleared(self, most_s: float, *, even_stuck: bool = False) -> Iterator[None]:
        """Stop what runs, wait up to `most_s` until it has ended, let nothing start before the end of the block.

        What does not stop in that time is stuck, and not waited for the next time, unless `even_stuck` says so: it is
        inside a step that it cannot leave, and holds what it held before.
        """
        give_up_s = monotonic_s() + most_s
        with self._changed:
            self._held += 1
            while awaited := [place for place in self._running if even_stuck or not place.is_stuck]:
                for place in awaited:
                    place.evicted = True
                    place.interrupt()
                    place.is_stuck = place.is_stuck or monotonic_s() >= give_up_s
                if monotonic_s() >= give_up_s:
                    break
                self._changed.wait(_REPEAT_S)
        try:
            yield
        finally:
            with self._changed:
                self._held -= 1
                self._changed.notify_all()

    def _is_next(self, place: Place) -> bool:
        return not self._held and len(self._running) < self._count and self._waiting[0] is place
