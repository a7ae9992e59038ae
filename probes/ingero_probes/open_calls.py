"""Which of the calls in progress are worth telling of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ingero_probes.decode import Call

OPEN_NS: Final = 10_000_000_000
"""A call that runs for so long is told of while it runs, and again each time as much has passed."""


class OpenCalls:
    """Remembers what was told when."""

    def __init__(self) -> None:
        self._told_ns: dict[tuple[int, int], int] = {}

    def due(self, in_progress: Iterable[Call], now_ns: int) -> Iterator[Call]:
        """The calls to tell of at this monotonic time; `in_progress` is all there are."""
        told_ns = {}
        for call in in_progress:
            key = (call.tid, call.start_ns)
            last_ns = self._told_ns.get(key, call.start_ns)
            is_due = now_ns - last_ns >= OPEN_NS
            told_ns[key] = now_ns if is_due else last_ns
            if is_due:
                yield call
        self._told_ns = told_ns
