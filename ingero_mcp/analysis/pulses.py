"""Pulses: what calls say about clocks. The ends of one collective are nearly one moment, whatever clock stamped them.

Calls of one event on one clock are one element: the earliest end and the latest entry are what binds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.grouping import Grouping

SPREAD_NS: Final = 100e3
"""How far the ends of one collective are apart on different ranks where the data cannot tell: 4 to 340 us were seen."""


@dataclass(frozen=True, slots=True, eq=False)
class Pulses:
    """One element per clock and event, sorted by event and clock; an event is a collective or a send with its receive.

    Times are nanoseconds since `base_ns` on the clock of the element; `clock` is a place in `clocks`. `exit_ns` is
    the end as a pulse (NaN: not known), good to about `spread_ns`. No `after_ns` of an event can truly be before any
    `before_ns` of it; where one is not known or promises nothing, it is infinite. Events of one `link` join the same
    clocks: a communicator, or two clocks that send to each other.
    """

    event: Int64s
    link: Int64s
    clock: Int64s
    exit_ns: Floats
    before_ns: Floats
    after_ns: Floats
    took_ns: Floats
    spread_ns: Floats
    clocks: Int64s
    base_ns: int

    def __len__(self) -> int:
        return len(self.event)

    def starts(self) -> Int64s:
        """Where each event begins; events count from 0 without gaps."""
        return starts_of(self.event)

    def sizes(self) -> Int64s:
        """On how many clocks each event is."""
        return np.diff(self.starts(), append=len(self))

    def by_event(self) -> Grouping:
        return Grouping.of_runs(self.starts(), len(self))

    def where(self, chosen: Bools) -> Pulses:
        """Some of the elements; of an event that is left with one clock none."""
        if chosen.all():
            return self
        return of_several_clocks(replace(self, **{name: getattr(self, name)[chosen] for name in ARRAYS}))


ARRAYS: Final = tuple(field.name for field in fields(Pulses) if field.name not in ("clocks", "base_ns"))


def starts_of(numbers: Int64s) -> Int64s:
    """Where each run of equal numbers begins."""
    if not len(numbers):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1])


def of_several_clocks(pulses: Pulses) -> Pulses:
    """Without the events that only one clock has part in, and with events numbered anew."""
    sizes = pulses.sizes()
    if (sizes > 1).all():
        return replace(pulses, event=np.repeat(np.arange(len(sizes)), sizes))
    joint = np.repeat(sizes > 1, sizes)
    columns: dict[str, Any] = {name: getattr(pulses, name)[joint] for name in ARRAYS}
    columns["event"] = np.repeat(np.arange(np.count_nonzero(sizes > 1)), sizes[sizes > 1])
    return replace(pulses, **columns)
