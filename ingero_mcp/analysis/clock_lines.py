"""What laid clocks come to: for each clock its offset over its own time, with a bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Final, Literal

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.clock_curves import DRIFT
from ingero_mcp.analysis.laid_clocks import Laid

Method = Literal["reference", "pulses", "causality", "samples", "unknown"]

_SURE: Final = 5.0
"""A bound that rests on the spread of pulses is this many standard deviations."""

_NEAR_NS: Final = 1e6
_ENDLESS_NS: Final = 1e22  # between an infinite bound and a finite one everything is as good as infinite


@dataclass(frozen=True, slots=True, eq=False)
class ClockLine:
    """The offset of one clock over its own time: linear between `at_ns`, which ascend, and constant beyond.

    It is relative to clock `reference`. `loose_ns` is the part of the bound that does not come from the spread of the
    pulses; `place` says which row and column of `pairs_of` knows that spread.
    """

    clock: int
    reference: int
    at_ns: Int64s
    offset_ns: Floats
    bound_ns: Floats
    loose_ns: Floats
    place: Int64s
    methods: tuple[Method, ...]

    def offset_at(self, times_ns: Int64s) -> Floats:
        """What to subtract from times of this clock."""
        return self._at(times_ns, self.offset_ns)

    def bound_at(self, times_ns: Int64s) -> Floats:
        """How wrong the offset may be: before and after everything that was seen of the clock the more, the farther."""
        return self._at(times_ns, self.bound_ns) + self._beyond(times_ns)

    def loose_at(self, times_ns: Int64s) -> Floats:
        return self._at(times_ns, self.loose_ns) + self._beyond(times_ns)

    def place_at(self, time_ns: int) -> int:
        return int(self.place[min(int(np.searchsorted(self.at_ns, time_ns)), len(self.place) - 1)])

    def local(self, reference_ns: int) -> int:
        """What this clock showed at a time of the reference."""
        guess = np.array([reference_ns], np.int64)
        for _ in range(2):
            guess = reference_ns + np.rint(self.offset_at(guess)).astype(np.int64)
        return int(guess[0])

    def _beyond(self, times_ns: Int64s) -> Floats:
        beyond = np.maximum(np.maximum(self.at_ns[0] - times_ns, times_ns - self.at_ns[-1]), 0)
        result: Floats = DRIFT * beyond.astype(np.float64)
        return result

    def _at(self, times_ns: Int64s, values: Floats) -> Floats:
        base = self.at_ns[0]
        finite = np.minimum(values, _ENDLESS_NS)
        result: Floats = np.interp((times_ns - base).astype(np.float64), (self.at_ns - base).astype(np.float64), finite)
        result[result >= _ENDLESS_NS / 1e3] = np.inf
        return result


def pairs_of(laid: Laid | None) -> Floats:
    """For each two places, how wrong their difference may be by the spread of the pulses between them."""
    return _SURE * np.sqrt(laid.curves.variance) if laid is not None else np.zeros((0, 0))


def lines_of(laid: Laid | None, numbers: Int64s, base_ns: int) -> dict[int, ClockLine]:
    """The line of each clock, by number; of one that shares no pulse with another, offset 0 and an infinite bound."""
    lines = {number: _unknown(number, base_ns) for number in numbers.tolist()}
    if laid is None:
        return lines
    common = np.flatnonzero(~np.isin(laid.pulses.clocks, numbers))
    seen = _Seen.of(laid, int(common[0]) if len(common) else -1)
    pieces: dict[int, list[ClockLine]] = {}
    for place in np.flatnonzero(laid.part >= 0).tolist():
        number = int(laid.pulses.clocks[place])
        if number in lines:  # not the clock of samples
            pieces.setdefault(number, []).append(_piece(laid, seen, place))
    for number, own in pieces.items():
        lines[number] = _joined(sorted(own, key=lambda piece: int(piece.at_ns[0])))
    return lines


def _unknown(number: int, base_ns: int) -> ClockLine:
    nothing, infinite = np.zeros(1), np.full(1, np.inf)
    at = np.array([base_ns], np.int64)
    return ClockLine(number, number, at, nothing, infinite, infinite, np.zeros(1, np.int64), ("unknown",))


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """The true times at which something was seen of each place, and whether all of it were samples."""

    times: Floats
    first_at: Int64s
    is_sampled: Bools

    @classmethod
    def of(cls, laid: Laid, common: int) -> _Seen:
        known = np.flatnonzero(~np.isnan(laid.pulses.exit_ns))
        place, shown = laid.pulses.clock[known], laid.pulses.exit_ns[known]
        true_ns = shown - laid.curves.at_local(place, shown)
        order = np.lexsort((true_ns, place))
        starts, sizes = laid.pulses.starts(), laid.pulses.sizes()
        is_sample = np.repeat(np.maximum.reduceat(laid.pulses.clock == common, starts), sizes)
        is_sampled = np.bincount(laid.pulses.clock, ~is_sample, len(laid.part)) == 0
        return cls(true_ns[order], np.searchsorted(place[order], np.arange(len(laid.part) + 1)), is_sampled)

    def of_place(self, place: int) -> Floats:
        return self.times[self.first_at[place] : self.first_at[place + 1]]


def _piece(laid: Laid, seen: _Seen, place: int) -> ClockLine:
    """The line of one place, between its first and its last pulse."""
    times, knots, reference = seen.of_place(place), laid.curves.knots_ns, int(laid.part[place])
    inside = knots[(knots > times[0] + _NEAR_NS) & (knots < times[-1] - _NEAR_NS)]
    true_ns = np.concatenate([times[:1], inside, times[-1:]])
    step = knots[1] - knots[0]
    # At a knot both stretches that meet there count.
    stretches = len(knots) - 2
    early = np.clip(np.ceil((true_ns - knots[0]) / step) - 1, 0, stretches).astype(np.int64)
    late = np.clip((true_ns - knots[0]) // step, 0, stretches).astype(np.int64)
    low = np.minimum(laid.low_ns[early, place], laid.low_ns[late, place])
    high = np.maximum(laid.high_ns[early, place], laid.high_ns[late, place])
    moved = np.clip(-laid.late_ns[place], low, high)
    causal = np.maximum(high - moved, moved - low)
    strain = np.maximum(laid.strain_ns[early, place], laid.strain_ns[late, place])
    spread = _SURE * float(np.sqrt(laid.curves.variance[place, reference]))
    loose = DRIFT * _idle(times, true_ns) + strain + laid.unsure_ns[place]
    # Pulses that causality contradicts by so much are not what they are taken for.
    loose[np.abs(moved + laid.late_ns[place]) > spread / 2] = np.inf
    offset = laid.curves.at(np.full(len(true_ns), place), true_ns) + moved
    is_reference = place == reference
    methods: list[Method] = ["pulses" if is_it else "causality" for is_it in (spread + loose <= causal).tolist()]
    if seen.is_sampled[place]:
        methods = ["samples"] * len(true_ns)
    if is_reference:
        methods = ["reference"] * len(true_ns)
    return ClockLine(
        clock=int(laid.pulses.clocks[place]),
        reference=int(laid.pulses.clocks[reference]),
        at_ns=laid.pulses.base_ns + np.rint(true_ns + offset).astype(np.int64),
        offset_ns=offset - laid.curves.at(np.full(len(true_ns), reference), true_ns),
        bound_ns=np.zeros(len(true_ns)) if is_reference else np.minimum(spread + loose, causal),
        loose_ns=np.zeros(len(true_ns)) if is_reference else loose,
        place=np.full(len(true_ns), place),
        methods=tuple(methods),
    )


def _idle(times: Floats, at: Floats) -> Floats:
    """How long before or after each moment something was seen."""
    after = np.minimum(np.searchsorted(times, at), len(times) - 1)
    result: Floats = np.minimum(np.abs(times[after] - at), np.abs(times[np.maximum(after - 1, 0)] - at))
    return result


def _joined(pieces: list[ClockLine]) -> ClockLine:
    """One line of the stretches between jumps. In the gap of a jump, or where time is shown twice, both may hold."""
    main = max(pieces, key=lambda piece: int(piece.at_ns[-1] - piece.at_ns[0]))
    rows: list[ClockLine] = []
    for piece in pieces:
        if piece.reference != main.reference:
            endless = np.full(len(piece.at_ns), np.inf)
            piece = replace(piece, bound_ns=endless, loose_ns=endless, reference=main.reference)
        rows += _around_jump(rows.pop(), piece) if rows else [piece]
    line = _joint(rows)
    return _where(line, np.diff(np.maximum.accumulate(line.at_ns), prepend=line.at_ns[0] - 1) > 0)


def _around_jump(before: ClockLine, after: ClockLine) -> list[ClockLine]:
    low, high = sorted((int(before.at_ns[-1]), int(after.at_ns[0])))
    middle = (low + high) // 2
    jump = abs(float(after.offset_ns[0] - before.offset_ns[-1]))
    return [
        _where(before, before.at_ns < low - 1),
        _read(before, [low - 1], 0.0),
        _read(before, [low, middle], jump),
        _read(after, [middle + 1, high], jump),
        _joint([_read(after, [high + 1], 0.0), _where(after, after.at_ns > high + 1)]),
    ]


def _joint(rows: list[ClockLine]) -> ClockLine:
    columns: dict[str, Any] = {name: np.concatenate([getattr(row, name) for row in rows]) for name in _COLUMNS}
    return replace(rows[0], **columns, methods=tuple(method for row in rows for method in row.methods))


def _where(line: ClockLine, chosen: Bools) -> ClockLine:
    columns: dict[str, Any] = {name: getattr(line, name)[chosen] for name in _COLUMNS}
    return replace(line, **columns, methods=tuple(compress(line.methods, chosen)))


def _read(line: ClockLine, at_ns: list[int], unsure_ns: float) -> ClockLine:
    """The line at other times, a jump less sure."""
    times = np.array(at_ns, np.int64)
    return replace(
        line,
        at_ns=times,
        offset_ns=line.offset_at(times),
        bound_ns=line.bound_at(times) + unsure_ns,
        loose_ns=line.loose_at(times) + unsure_ns,
        place=np.full(len(times), line.place[0]),
        methods=line.methods[-1:] * len(times),
    )


_COLUMNS: Final = ("at_ns", "offset_ns", "bound_ns", "loose_ns", "place")
