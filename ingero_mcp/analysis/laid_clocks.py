"""The clocks of one set of pulses laid over each other: curves, the limits of causality, and where clocks jumped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Floats, Int64s
from ingero_mcp.analysis.clock_blocks import quiet
from ingero_mcp.analysis.clock_curves import DRIFT, Curves, align, components, straight, straightened
from ingero_mcp.analysis.clock_limits import causal_limits
from ingero_mcp.analysis.clock_steps import Cut, find_cut, split
from ingero_mcp.analysis.pulses import Pulses

_MOST_CUTS: Final = 24
_NEAR_NS: Final = 1e6
_NEAR: Final = 0.1  # of a jump
_FEW: Final = 12  # pulses


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """Clocks by place; one that jumped has a place for each stretch between jumps (see `Pulses.clocks`).

    `part` is the place of the reference that a place hangs together with, -1 of one without a pulse. `low_ns`,
    `high_ns` and `strain_ns` are those of `causal_limits`. `proven` says of each cut whether causality allows no other
    reading; `unsure_ns` is, for each place, by how much it is wrong if a jump was none. `late_ns` is by how much its
    ends are taken to have come late, which its curve does not know.
    """

    pulses: Pulses
    curves: Curves
    part: Int64s
    low_ns: Floats
    high_ns: Floats
    strain_ns: Floats
    cuts: tuple[Cut, ...]
    proven: tuple[bool, ...]
    unsure_ns: Floats
    late_ns: Floats


def lay(pulses: Pulses, references: Int64s) -> Laid | None:
    """Lays the clocks over each other, with some of `references` as references; None if no two share a pulse."""
    known = _known(pulses)
    if not len(known):
        return None
    part = _parts(known, references)
    anchors = np.unique(part[part >= 0])
    lines = straight(known, anchors)
    without_noise = quiet(pulses, lines)
    if (_parts(_known(without_noise), references) == part).all():
        pulses = without_noise
    cuts: tuple[Cut, ...] = ()
    while len(cuts) < _MOST_CUTS and (cut := find_cut(_known(pulses), lines)) is not None:
        pulses, lines = split(pulses, lines, cut)
        cuts = _in_time([*cuts, cut], pulses)
        lines = straightened(_known(pulses), lines, anchors)
    laid = _laid(pulses, lines, cuts, references)
    while needless := _needless(laid):
        pulses = laid.pulses
        for one in needless:
            pulses = _mended(pulses, *one)
        dropped = {cut for one in needless for cut in one}
        laid = _laid(pulses, lines, tuple(cut for cut in laid.cuts if cut not in dropped), references)
    return laid


def _known(pulses: Pulses) -> Pulses:
    return pulses.where(~np.isnan(pulses.exit_ns))


def _parts(known: Pulses, references: Int64s) -> Int64s:
    """For each place the reference of what it hangs together with: of those allowed the one with most pulses."""
    count = np.bincount(known.clock, minlength=len(known.clocks))
    label = components(known)
    chosen = np.full(len(label), -1)
    for place in references[np.argsort(-count[references], kind="stable")].tolist():
        if count[place] and chosen[label[place]] < 0:
            chosen[label[place]] = place
    return np.where(count > 0, chosen[label], -1)


def _in_time(cuts: list[Cut], pulses: Pulses) -> tuple[Cut, ...]:
    """Cuts by clock and time, each from the place that precedes it in time."""
    ordered = []
    before: dict[int, int] = {}
    for cut in sorted(cuts, key=lambda cut: (int(pulses.clocks[cut.later]), cut.from_ns)):
        number = int(pulses.clocks[cut.later])
        first = int(np.flatnonzero(pulses.clocks == number)[0])
        ordered.append(replace(cut, earlier=before.get(number, first)))
        before[number] = cut.later
    return tuple(ordered)


def _laid(pulses: Pulses, lines: Curves, cuts: tuple[Cut, ...], references: Int64s) -> Laid:
    known = _known(pulses)
    places = {place for cut in cuts for place in (cut.earlier, cut.later)}
    steady = np.array([place for place in references if place not in places], np.int64)
    part = _parts(known, references)
    # Who jumped is no reference if there is another.
    better = _parts(known, steady)
    part = np.where(better >= 0, better, part)
    anchors = np.unique(part[part >= 0])
    curves = align(known, lines, anchors)
    bound = pulses.where(part[pulses.clock] >= 0)
    low, high, strain = causal_limits(bound, curves, anchors)
    laid = Laid(pulses, curves, part, low, high, strain, cuts, (), np.zeros(len(part)), np.zeros(len(part)))
    proven = tuple(_is_proven(laid, cut) for cut in cuts)
    unsure, late = _doubts(laid, proven, np.bincount(known.clock, minlength=len(part)))
    return replace(laid, proven=proven, unsure_ns=unsure, late_ns=late)


def jump_at(laid: Laid, cut: Cut) -> float:
    """By how much the clock jumped, by the lines before and after."""
    at = np.array([cut.from_ns, cut.from_ns])
    earlier, later = laid.curves.at(np.array([cut.earlier, cut.later]), at)
    return float(later - earlier)


def _is_proven(laid: Laid, cut: Cut) -> bool:
    """Whether no offset that causality allows before the jump is allowed after it."""
    jump = jump_at(laid, cut)
    low, high = laid.low_ns.max(axis=0), laid.high_ns.min(axis=0)
    first, last = (cut.earlier, cut.later) if jump > 0 else (cut.later, cut.earlier)
    return bool(abs(jump) + low[last] - high[first] > _NEAR * abs(jump))


def _doubts(laid: Laid, proven: tuple[bool, ...], count: Int64s) -> tuple[Floats, Floats]:
    """How wrong places are if ends came late (which looks like a clock that is ahead), and where a few are taken so."""
    unsure, late = np.zeros(len(laid.part)), np.zeros(len(laid.part))
    for cut, is_proven in zip(laid.cuts, proven, strict=True):
        jump = jump_at(laid, cut)
        members = np.unique(laid.pulses.clocks[laid.part == laid.part[cut.later]])
        for place, is_late in ((cut.later, jump > 0), (cut.earlier, jump < 0)):
            if not is_proven and (is_late or len(members) == 2):
                unsure[place] += abs(jump)
            if not is_proven and is_late and count[place] <= _FEW:
                late[place] = abs(jump)
    return unsure, late


def _needless(laid: Laid) -> list[tuple[Cut, ...]]:
    """Cuts at which nothing jumped, and pairs between which ends came late, no more: clocks do not jump back."""
    needless: list[tuple[Cut, ...]] = []
    for (there, is_proven), (back, is_back_proven) in pairwise(zip(laid.cuts, laid.proven, strict=True)):
        is_taken = bool(needless) and there in needless[-1]
        if back.earlier != there.later or is_proven or is_back_proven or is_taken:
            continue
        jump, rest = jump_at(laid, there), jump_at(laid, there) + jump_at(laid, back)
        near = max(_NEAR_NS, _NEAR * abs(jump)) + DRIFT * (back.from_ns - there.from_ns)
        if abs(rest) <= near:
            needless.append((there, back))
    taken = {cut for one in needless for cut in one}
    for cut, is_proven in zip(laid.cuts, laid.proven, strict=True):
        if abs(jump_at(laid, cut)) < _NEAR_NS and not is_proven and cut not in taken:
            needless.append((cut,))
    # The last first: what comes after a cut is given to what is before it, which may itself be given away.
    return sorted(needless, key=lambda one: -one[0].from_ns)


def _mended(pulses: Pulses, there: Cut, back: Cut | None = None) -> Pulses:
    """The clock is one again. What came late, between two cuts, is no pulse."""
    exit_ns, clock = pulses.exit_ns.copy(), pulses.clock.copy()
    if back is not None:
        exit_ns[clock == there.later] = np.nan
        clock[clock == back.later] = there.earlier
    clock[clock == there.later] = there.earlier
    return replace(pulses, exit_ns=exit_ns, clock=clock)
