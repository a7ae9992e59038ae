"""Where the clock of a trace stands: times are absolute, or count from a base that it tells, or from one unknown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from ingero_mcp.importers.kineto.columns import Int64s
from ingero_mcp.importers.kineto.units import MOST_NS, integer

MEMBER: Final = "baseTimeNanoseconds"
EPOCH_NS: Final = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp()) * 10**9
"""Where a trace is laid whose base is not known: a fixed round date, so that importing twice gives the same twice."""

_EARLIEST_NS: Final = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()) * 10**9
_LATEST_NS: Final = int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()) * 10**9


@dataclass(frozen=True, slots=True)
class TimeBase:
    """`offset_ns` is to be added to every time; `relative` says that the sum is not the time of day."""

    offset_ns: int
    relative: bool
    warnings: tuple[str, ...] = ()


def time_base(given: Any, start_ns: Int64s) -> TimeBase:
    """Decide by most of the rows, whatever single ones claim; `given` is what the trace says of its base."""
    base_ns = integer(given, -MOST_NS, MOST_NS)
    unusable = () if given is None or base_ns is not None else (f"its {MEMBER} is not a number of nanoseconds",)
    if not len(start_ns):
        return TimeBase(0, relative=False, warnings=unusable)
    middle_ns = int(np.median(start_ns))
    if middle_ns >= _EARLIEST_NS:
        added = (f"its times are absolute although it tells a {MEMBER}, which is not added",) if base_ns else ()
        return TimeBase(0, relative=False, warnings=(*unusable, *added))
    if base_ns is not None and _EARLIEST_NS <= middle_ns + base_ns < _LATEST_NS:
        return TimeBase(base_ns, relative=False)
    why = f"its {MEMBER} is no time since 2020" if base_ns is not None else f"it has no {MEMBER}"
    return TimeBase(
        EPOCH_NS,
        relative=True,
        warnings=(
            *unusable,
            f"its times count from an unknown moment ({why}): they are laid from 2025-01-01 on, and cannot be compared "
            "with those of other files",
        ),
    )


def plausible(times_ns: Int64s) -> Any:
    """Which of the times, with the offset added, can be true."""
    return (times_ns >= _EARLIEST_NS) & (times_ns < _LATEST_NS)
