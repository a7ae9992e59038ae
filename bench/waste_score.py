"""How far the wall time that an answer says was lost is from what the generator knows."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Final

from bench.score import Answer, asks_who
from ingero_mcp.synth.scenario import Truth

CLOSE: Final = 0.1


def errors(answered: Iterable[tuple[Truth, Answer]], *, bounds: bool = False) -> list[float]:
    """The relative errors, with their sign, of the answers that say who is at fault: of estimates, or of `bounds`.

    Asked are cases in which one incident cost time and the view shows who. Where several ranks take turns a finding is
    of some of them, so that its cost is not that of the case: those are left out.
    """
    return [
        answer.lost_ns / truth.lost_ns - 1
        for truth, answer in answered
        if is_asked(truth) and answer.lost_ns is not None and answer.is_bound == bounds
        if answer.verdict == truth.verdict
    ]


def is_asked(truth: Truth) -> bool:
    """Whether the cost of a finding can be held against that of the case."""
    has_one = not truth.is_hidden and not truth.faults and "rotating" not in truth.traits
    return has_one and truth.lost_ns > 0 and (asks_who(truth) or truth.group is not None)


def median_error(found: list[float]) -> float | None:
    """How far off the middle one is, as a share of the truth."""
    return median(abs(one) for one in found) if found else None


def close_share(found: list[float]) -> float | None:
    """The share within a tenth of the truth."""
    return sum(abs(one) <= CLOSE for one in found) / len(found) if found else None


def over_share(found: list[float]) -> float | None:
    """The share that is at least the truth, less a tenth: what bounds have to be."""
    return sum(one >= -CLOSE for one in found) / len(found) if found else None
