"""What the accuracy has to be, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.double_score import Doubles
from bench.score import Tally, rate, share
from bench.suite import BIG
from bench.waste_score import close_share, errors, median_error
from ingero_mcp.synth.scenario import DOUBLES, FAMILIES, UNSEEN, UNTOLD

if TYPE_CHECKING:
    from bench.scored import Scored

_OURS: Final = "explain_stall"


@dataclass(frozen=True, slots=True)
class Goal:
    """`measure` gives the figure; it should be at least `target`, or at most where `is_most`."""

    what: str
    target: float
    measure: Callable[[Sequence[Scored]], float | None]
    is_most: bool = False

    def line(self, scored: Sequence[Scored]) -> str:
        """As a row of a table."""
        found = self.measure(scored)
        met = (
            "-"
            if found is None
            else "yes"
            if (found <= self.target if self.is_most else found >= self.target)
            else "no"
        )
        sign = "<=" if self.is_most else ">="
        return f"| {self.what} | {sign} {self.target:g} | {rate(found)} | {met} |"


def lines(scored: Sequence[Scored]) -> list[str]:
    """The goals as a table."""
    return [
        "| goal, severity >= 3 | target | measured | met |",
        "|---|---|---|---|",
        *(goal.line(scored) for goal in GOALS),
    ]


def _tally(which: Callable[[Tally], Any], *, single: bool = False) -> Callable[[Sequence[Scored]], float | None]:
    def measure(scored: Sequence[Scored]) -> float | None:
        counts = Tally()
        for one in _big(scored, FAMILIES):
            if not single or one.truth.is_single:
                counts.add(one.truth, one.answers[_OURS], one.spec.seed)
        found: float | None = which(counts)
        return found

    return measure


def _big(scored: Sequence[Scored], families: dict[str, Any]) -> list[Scored]:
    return [one for one in scored if one.spec.family in families and not 0 < one.truth.severity < BIG]


def _lost(which: Callable[[list[float]], float | None]) -> Callable[[Sequence[Scored]], float | None]:
    def measure(scored: Sequence[Scored]) -> float | None:
        chosen = [one for one in _big(scored, FAMILIES) if one.spec.view != "probe"]
        return which(errors((one.truth, one.answers[_OURS]) for one in chosen if one.truth.is_single))

    return measure


def _unseen(scored: Sequence[Scored]) -> float | None:
    counts = Tally()
    for one in _big(scored, UNSEEN):
        counts.add(one.truth, one.answers[_OURS], one.spec.seed)
    return counts.top1_rate


def _doubles(which: str) -> Callable[[Sequence[Scored]], float | None]:
    def measure(scored: Sequence[Scored]) -> float | None:
        counts = Doubles()
        for one in _big(scored, DOUBLES):
            counts.add(one.truth, one.answers[_OURS])
        return counts.rates[which]

    return measure


def _untold(scored: Sequence[Scored]) -> float | None:
    said = [one.answers[_OURS].verdict for one in scored if one.spec.family in UNTOLD]
    return share(sum(verdict in ("undecidable", "healthy") for verdict in said), len(said))


GOALS: Final = (
    Goal("top-1, one rank at fault", 0.95, _tally(lambda counts: counts.top1_rate, single=True)),
    Goal("top-1, all", 0.95, _tally(lambda counts: counts.top1_rate)),
    Goal("precision", 0.95, _tally(lambda counts: counts.precision)),
    Goal("F1", 0.93, _tally(lambda counts: counts.f1)),
    Goal("blame on clean", 0.02, _tally(lambda counts: counts.blame_rate), is_most=True),
    Goal("cause, where the view shows it", 0.80, _tally(lambda counts: counts.cause_rates[0])),
    Goal("cause of two", 0.95, _tally(lambda counts: counts.cause_rates[1])),
    Goal("what was lost, one rank at fault, GPU timing: median error", 0.10, _lost(median_error), is_most=True),
    Goal("the same: share within a tenth", 0.90, _lost(close_share)),
    Goal("unseen families: top-1", 0.95, _unseen),
    Goal("two incidents: the costlier one first", 0.90, _doubles("first")),
    Goal("two incidents: each is named", 0.90, _doubles("named")),
    Goal("what cannot be told: said so, or nothing", 0.95, _untold),
)
