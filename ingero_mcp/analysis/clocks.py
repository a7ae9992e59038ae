"""Clocks: how far those of different nodes are apart, from what the collectives themselves say, with an honest bound.

The ends of a collective are pulses that all its ranks see at nearly the same moment; they give the estimate. That
nobody leaves a collective before everybody has entered it needs no symmetry; it gives bounds, and shows clocks that
jump. Offsets that somebody measured are used where there are any.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ingero_mcp.analysis.calls import Calls, Floats, Int64s
from ingero_mcp.analysis.clock_lines import ClockLine, Method, lines_of, pairs_of
from ingero_mcp.analysis.grouping import Grouping
from ingero_mcp.analysis.laid_clocks import Laid, jump_at, lay
from ingero_mcp.analysis.pulse_sources import ClockSample, gather


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What to subtract from times of one clock around `at_ns` (its own time) to get those of `reference`.

    The true offset is within `bound_ns` of it. `method` is what the bound rests on: the spread of the pulses, or
    causality alone. It is infinite and "unknown" for a clock that nothing connects with another.
    """

    clock: int
    at_ns: int
    offset_ns: float
    bound_ns: float
    method: Method
    reference: int


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A clock that jumped by about `jump_ns` after `after_ns` and before `before_ns`, which are its own times.

    `is_proven`: causality allows no other reading. If not, its ends may have come late on one side of the jump.
    """

    clock: int
    after_ns: int
    before_ns: int
    jump_ns: float
    is_proven: bool


@dataclass(frozen=True, slots=True, eq=False)
class ClockFit:
    """Offsets of all clocks.

    `connected` are the groups of clocks that hang together, the largest first; each has a reference of its own, and
    between groups nothing can be said. `reference` is that of the first, -1 where there are no clocks.
    """

    reference: int
    lines: dict[int, ClockLine]
    steps: tuple[ClockStep, ...]
    connected: tuple[frozenset[int], ...]
    pair_ns: Floats

    @property
    def offsets(self) -> tuple[ClockOffset, ...]:
        """Each clock at each time at which its offset is fitted: at least every minute. What is kept per node."""
        return tuple(row for line in self.lines.values() for row in _rows(line))

    def corrected(self, clock: Int64s, times_ns: Int64s) -> Int64s:
        """`times_ns` of `clock` as the reference would have stamped them; times of unknown clocks and -1 stay."""
        result = times_ns.copy()
        grouping = Grouping.of(clock)
        for number, members in zip(grouping.named.tolist(), grouping.members(), strict=True):
            line = self.lines.get(number)
            if line is not None:
                chosen = members[times_ns[members] >= 0]
                result[chosen] -= np.rint(line.offset_at(times_ns[chosen])).astype(np.int64)
        return result

    def bounds_ns(self, clock: Int64s, times_ns: Int64s) -> Floats:
        """How wrong each corrected time may be, against the reference of its clock; infinite where nothing is known."""
        result = np.full(len(clock), np.inf)
        grouping = Grouping.of(clock)
        for number, members in zip(grouping.named.tolist(), grouping.members(), strict=True):
            if number in self.lines:
                result[members] = self.lines[number].bound_at(times_ns[members])
        return result

    def bound_ns(self, a: int, b: int, at_ns: int) -> float:
        """How wrong "a against b" may be around the corrected time `at_ns`; infinite if nothing connects the two."""
        if a == b:
            return 0.0
        one, other = self.lines.get(a), self.lines.get(b)
        if one is None or other is None or one.reference != other.reference:
            return math.inf
        places, bound, loose = [], 0.0, 0.0
        for line in (one, other):
            local = line.local(at_ns)
            places.append(line.place_at(local))
            bound += float(line.bound_at(np.array([local]))[0])
            loose += float(line.loose_at(np.array([local]))[0])
        return min(bound, float(self.pair_ns[places[0], places[1]]) + loose)


def _rows(line: ClockLine) -> Iterator[ClockOffset]:
    rows = zip(line.at_ns.tolist(), line.offset_ns.tolist(), line.bound_ns.tolist(), line.methods, strict=True)
    for at, offset, bound, method in rows:
        yield ClockOffset(line.clock, at, offset, bound, method, line.reference)


def fit(calls: Calls, sends: Calls | None = None, samples: Sequence[ClockSample] = ()) -> ClockFit:
    """The offsets of the clocks of `calls` and of `sends`, in which the calls of one transfer share `collective`.

    Without a pulse that two clocks share, offsets are zero and their bounds infinite.
    """
    pulses = gather(calls, sends, samples)
    numbers = pulses.clocks[: len(pulses.clocks) - bool(samples)]
    laid = lay(pulses, np.arange(len(numbers)))
    lines = lines_of(laid, numbers, pulses.base_ns)
    groups: dict[int, set[int]] = {}
    for line in lines.values():
        groups.setdefault(line.reference, set()).add(line.clock)
    connected = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return ClockFit(
        reference=connected[0][0] if connected else -1,
        lines=lines,
        steps=_steps(laid),
        connected=tuple(frozenset(members) for _, members in connected),
        pair_ns=pairs_of(laid),
    )


def _steps(laid: Laid | None) -> tuple[ClockStep, ...]:
    if laid is None:
        return ()
    base = laid.pulses.base_ns
    return tuple(
        ClockStep(
            clock=int(laid.pulses.clocks[cut.later]),
            after_ns=base + round(cut.after_ns),
            before_ns=base + round(cut.before_ns),
            jump_ns=jump_at(laid, cut),
            is_proven=is_proven,
        )
        for cut, is_proven in zip(laid.cuts, laid.proven, strict=True)
        if not laid.late_ns[[cut.earlier, cut.later]].any()
    )
