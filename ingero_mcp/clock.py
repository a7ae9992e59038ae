"""The only place that reads the time."""

from __future__ import annotations

import time
from collections.abc import Callable

WallClock = Callable[[], int]
"""Returns Unix time in nanoseconds; tests pass their own."""


def now_ns() -> int:
    """Unix time in nanoseconds."""
    return time.time_ns()


def monotonic_s() -> float:
    """Seconds on a clock that never goes back: for durations and deadlines only."""
    return time.monotonic()
