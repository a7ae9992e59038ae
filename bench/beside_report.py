"""Tables beside those of the families: what was lost, unseen families, double incidents, what cannot be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from bench.double_score import Doubles
from bench.score import Tally, rate, share
from bench.suite import BIG
from bench.waste_score import close_share, errors, median_error, over_share
from ingero_mcp.synth.scenario import DOUBLES, FAMILIES, UNSEEN, UNTOLD

if TYPE_CHECKING:
    from bench.scored import Scored

_OURS: Final = "explain_stall"
Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table with what it says; rates are numbers, None where nothing was asked."""

    name: str
    reading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def markdown(self) -> list[str]:
        """As lines of a document."""
        head = [
            f"## {self.name}",
            "",
            self.reading,
            "",
            f"| {' | '.join(self.columns)} |",
            "|---" * len(self.columns) + "|",
        ]
        return [*head, *(f"| {' | '.join(map(_shown, row))} |" for row in self.rows)]

    @property
    def text(self) -> list[str]:
        """As lines for a terminal."""
        lines = [self.columns, *(tuple(map(_shown, row)) for row in self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.columns))]
        return [
            f"\n{self.name}",
            *("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines),
        ]


def beside(scored: Sequence[Scored]) -> list[Table]:
    """The tables that have something in them."""
    made = [waste_table(scored), unseen_table(scored), doubles_table(scored), untold_table(scored)]
    return [table for table in made if table.rows]


def waste_table(scored: Sequence[Scored]) -> Table:
    """How far what was said to be lost is from the truth, by view and family."""
    chosen = [one for one in scored if one.spec.family in FAMILIES and (one.truth.severity or 0) >= BIG]
    return Table(
        "What was lost, severity >= 3",
        "The truth is the difference to the same run (same seed, same noise) without the incident; for F12 and F13, "
        "where that the work is uneven is the incident, to the same work dealt out evenly. Only answers with the "
        "right verdict; ranks that take turns are left out, since a finding is of some of them. *Error*: the median "
        "of the absolute relative errors. *Bounds*: where the answer says *at most*; *hold*: share that is not below "
        "the truth by more than a tenth. A pair of runs knows what each step would have taken; an answer has one "
        "run, in which a few steps of a small incident scatter by as much as it: at severity 3 a tenth is often less "
        "than the noise of the affected steps.",
        ("of", "view", "severity", "estimates", "error", "within 10%", "bounds", "error of bounds", "hold"),
        (
            *_wasted(chosen, lambda one: ("all", "kernel, optrace" if one.spec.view != "probe" else "probe", "")),
            *_wasted(chosen, lambda one: ("all", one.spec.view, f"{one.truth.severity:g}")),
            *_wasted(chosen, lambda one: (one.spec.family, one.spec.view, "")),
        ),
    )


def _wasted(scored: Sequence[Scored], key: Callable[[Scored], tuple[str, str, str]]) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for of, group in _grouped(scored, key).items():
        pairs = [(one.truth, one.answers[_OURS]) for one in group]
        found, bounds = errors(pairs), errors(pairs, bounds=True)
        if found or bounds:
            said = (len(found), median_error(found), close_share(found))
            rows.append((*of, *said, len(bounds), median_error(bounds), over_share(bounds)))
    return rows


def unseen_table(scored: Sequence[Scored]) -> Table:
    """Families that no rule was made for."""
    chosen = [one for one in scored if one.spec.family in UNSEEN]
    rows: list[tuple[Cell, ...]] = []
    for by in (
        lambda one: ("all", ""),
        lambda one: (one.spec.family, ""),
        lambda one: (one.spec.family, one.spec.view),
    ):
        for of, group in _grouped(chosen, by).items():
            counts = _tally(group)
            first, two, unknown = counts.cause_rates
            who = (counts.verdict_rate, counts.top1_rate, counts.precision, counts.recall, counts.f1)
            rows.append((*of, len(group), *who, first, two, unknown))
    return Table(
        "Unseen families, severity >= 3",
        "No rule, sign or threshold was made or changed for these, and no case of theirs was looked at: U1, the CPU "
        "quota of a container (the right cause is cpu_contention); U2, a host that swaps (no cause of the list is "
        "right: *unseen cause* is the share in which none is said).",
        (
            "of",
            "view",
            "cases",
            "verdict right",
            "top-1",
            "precision",
            "recall",
            "F1",
            "cause",
            "cause of two",
            "unseen cause",
        ),
        tuple(rows),
    )


def doubles_table(scored: Sequence[Scored]) -> Table:
    """Two incidents in one run."""
    chosen = [one for one in scored if one.spec.family in DOUBLES]
    rows: list[tuple[Cell, ...]] = []
    for by in (lambda one: ("all", ""), lambda one: ("all", one.spec.view), lambda one: (one.spec.family, "")):
        for of, group in _grouped(chosen, by).items():
            counts = Doubles()
            for one in group:
                counts.add(one.truth, one.answers[_OURS])
            rows.append((*of, len(group), *counts.rates.values()))
    return Table(
        "Two incidents in one run, severity >= 3",
        "M1: a rank without a CPU in most steps, another that waits for data every n-th step. M2: two ranks with "
        "periods of their own. M3: one in the first half of the run, another in the second. M4: a rank and a link. "
        "M5: a GPU and another rank's host. *Named*: share of the incidents that some finding names, of those that "
        "cost something beside the other and that the view shows. *Both*: share of the runs with two of them in "
        "which both are. *First*: the first finding is the costlier one (either, where costs are within a quarter). "
        "*Cause*: share of right causes of those named, where the view shows it. *Precision*: share of the ranks "
        "named in any finding that are at fault.",
        ("of", "view", "cases", "named", "both", "first", "cause", "precision"),
        tuple(rows),
    )


def untold_table(scored: Sequence[Scored]) -> Table:
    """What nobody can tell."""
    chosen = [one for one in scored if one.spec.family in UNTOLD]
    rows: list[tuple[Cell, ...]] = []
    for by in (lambda one: ("all", ""), lambda one: (one.spec.family, one.spec.view)):
        for of, group in _grouped(chosen, by).items():
            said = [one.answers[_OURS] for one in group]
            undecidable = sum(answer.verdict == "undecidable" for answer in said)
            healthy = sum(answer.verdict == "healthy" for answer in said)
            blamed = sum(answer.verdict not in ("undecidable", "healthy") for answer in said)
            rows.append((*of, len(group), *(share(part, len(group)) for part in (undecidable, healthy, blamed))))
    return Table(
        "What cannot be told",
        "A rank is late in all of these, and nothing that was recorded can tell it from one that is not. N1: one "
        "rank was recorded. N2: two ranks, one of which works longer from the first step on. N3: only when calls "
        "were enqueued, by clocks that are apart. N4: 0.15 of the spread. The right answer is *undecidable*, or that "
        "nothing shows (*healthy*); *blamed* is the share in which something is said to be wrong.",
        ("of", "view", "cases", "undecidable", "healthy", "blamed"),
        tuple(rows),
    )


def _tally(group: Sequence[Scored]) -> Tally:
    counts = Tally()
    for one in group:
        counts.add(one.truth, one.answers[_OURS], one.spec.seed)
    return counts


def _grouped(scored: Sequence[Scored], key: Callable[[Scored], tuple[str, ...]]) -> dict[tuple[str, ...], list[Scored]]:
    groups: dict[tuple[str, ...], list[Scored]] = {}
    for one in scored:
        groups.setdefault(key(one), []).append(one)
    return groups


def _shown(cell: Cell) -> str:
    return cell if isinstance(cell, str) else str(cell) if isinstance(cell, int) else rate(cell)
