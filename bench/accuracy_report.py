"""The tables of the accuracy suite: per family and severity, per view, per trait."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench import goals
from bench.baselines import RULES
from bench.beside_report import beside
from bench.score import Tally, rate
from bench.suite import BIG
from ingero_mcp.synth.scenario import FAMILIES

if TYPE_CHECKING:
    from bench.scored import Scored

_OURS: Final = "explain_stall"
Row = dict[str, Any]


def rows_of(scored: Sequence[Scored]) -> list[Row]:
    """A row per table and line: what it is about, then the counts and rates of every judge; of F1 to F18."""
    scored = [one for one in scored if one.spec.family in FAMILIES]
    return [
        *_rows("family and severity", scored, lambda one: (one.spec.family, _severity(one))),
        *_rows("view, severity >= 3", _big(scored), lambda one: (one.spec.view, "")),
        *_rows("view and family, severity >= 3", _big(scored), lambda one: (one.spec.view, one.spec.family)),
        *_rows(
            "severity, all slow families", [s for s in scored if s.truth.severity], lambda one: ("", _severity(one))
        ),
        *_trait_rows(_big(scored)),
        *_rows("all, severity >= 3", _big(scored), lambda one: ("", "")),
        *_rows("all", scored, lambda one: ("", "")),
    ]


def table(rows: Sequence[Row]) -> str:
    """All rows as text."""
    lines = []
    for name in dict.fromkeys(row["table"] for row in rows):
        lines += [f"\n{name}", _HEADER]
        lines += [_line(row) for row in rows if row["table"] == name]
    return "\n".join(lines)


def document(scored: Sequence[Scored], seeds: range) -> str:
    """docs/accuracy.md."""
    rows = rows_of(scored)
    seconds = [one.seconds for one in scored]
    asked = [one for one in scored if one.spec.family in FAMILIES]
    clean = sum(one.truth.is_clean for one in asked)
    text = [
        "# Accuracy of explain_stall",
        "",
        f"Written by `make accuracy` on {datetime.now(UTC):%Y-%m-%d}, commit {_commit()}: {len(asked)} generated "
        f"cases, {clean} of them clean, seeds from {seeds[0]} on (those below 1,000 are for tuning); and "
        f"{len(scored) - len(asked)} beside them, in tables of their own at the end. Asking took "
        f"{median(seconds):.2f} s per case (median).",
        "",
        *_READING,
        "",
        "## Goals",
        "",
        *goals.lines(scored),
    ]
    for name in dict.fromkeys(row["table"] for row in rows):
        text += ["", f"## By {name}" if name not in ("all", "all, severity >= 3") else f"## {name.capitalize()}", ""]
        text += [_MARKDOWN_HEADER, _MARKDOWN_RULE]
        text += [_markdown_line(row) for row in rows if row["table"] == name]
    for table in beside(scored):
        text += ["", *table.markdown]
    return "\n".join(text) + "\n"


def _rows(name: str, scored: Iterable[Scored], key: Callable[[Scored], tuple[str, str]]) -> list[Row]:
    groups: dict[tuple[str, str], list[Scored]] = {}
    for one in scored:
        groups.setdefault(key(one), []).append(one)
    return [_row(name, of, group) for of, group in groups.items()]


def _trait_rows(scored: Sequence[Scored]) -> list[Row]:
    traits = sorted({trait for one in scored for trait in one.truth.traits})
    return [
        _row("trait, severity >= 3", (trait, ""), [one for one in scored if trait in one.truth.traits])
        for trait in traits
    ]


def _row(name: str, of: tuple[str, str], group: Sequence[Scored]) -> Row:
    row: Row = {"table": name, "of": of[0], "severity": of[1], "cases": len(group)}
    for judge in (_OURS, *RULES):
        counts = Tally()
        for one in group:
            counts.add(one.truth, one.answers[judge], one.spec.seed)
        row[judge] = {
            "verdict": counts.verdict_rate,
            "top1": counts.top1_rate,
            "precision": counts.precision,
            "recall": counts.recall,
            "f1": counts.f1,
            "blame_on_clean": counts.blame_rate,
            **dict(zip(_CAUSES, counts.cause_rates, strict=True)),
            "undecided": counts.undecided,
            "crashes": sum(bool(one.crash) for one in group) if judge == _OURS else 0,
            "wrong_seeds": counts.wrong_seeds[:10],
        }
    return row


def _big(scored: Sequence[Scored]) -> list[Scored]:
    return [one for one in scored if not one.truth.severity or one.truth.severity >= BIG]


def _severity(one: Scored) -> str:
    return f"{one.truth.severity:g}" if one.truth.severity else "-"


_CAUSES: Final = ("cause_top1", "cause_top2", "unseen_cause")
_COLUMNS: Final = ("verdict", "top1", "precision", "recall", "f1", "blame_on_clean", *_CAUSES)
_HEADER: Final = (
    f"{'':<22}{'sev':>5}{'n':>6} | {'verdict':>8}{'top-1':>8}{'prec':>8}{'recall':>8}{'F1':>8}{'blamed':>8}{'cause':>8}"
    f"{'of two':>8}{'unseen':>8} | "
    f"{'latest':>8}{'wait':>8}   wrong seeds"
)


def _line(row: Row) -> str:
    ours = row[_OURS]
    rates = "".join(f"{rate(ours[column]):>8}" for column in _COLUMNS)
    rules = "".join(f"{rate(row[rule]['top1']):>8}" for rule in RULES)
    seeds = ",".join(map(str, ours["wrong_seeds"][:6]))
    return f"{row['of']:<22}{row['severity']:>5}{row['cases']:>6} | {rates} | {rules}   {seeds}"


_MARKDOWN_HEADER: Final = (
    "| of | severity | cases | verdict right | top-1 | precision | recall | F1 | blame on clean | cause | cause of "
    "two | unseen cause | latest arriver: top-1, precision | longest wait: top-1, precision |"
)
_MARKDOWN_RULE: Final = "|---" * 14 + "|"


def _markdown_line(row: Row) -> str:
    ours = " | ".join(rate(row[_OURS][column]) for column in _COLUMNS)
    rules = " | ".join(f"{rate(row[rule]['top1'])}, {rate(row[rule]['precision'])}" for rule in RULES)
    return f"| {row['of']} | {row['severity']} | {row['cases']} | {ours} | {rules} |"


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() or "unknown"


_READING: Final = (
    "How to read it. *Severity* is the size of the incident in an affected step, in multiples of the job's own "
    "spread: the robust sigma of a rank's work in a step, from differences between ranks. F12 and F13 scale with it "
    "(per unit a coefficient of variation of 0.025, a stage 6% larger). *Verdict right*: it is the planted one, or "
    "another that is right too in this view (a slow GPU that a host probe cannot see may be called undecidable or "
    "healthy). *Top-1*: the first rank named is at fault, or the stage or link at fault is named; only cases in "
    "which somebody can be found in this view. *Precision*: share of the named ranks that are at fault, over all "
    "cases, clean ones too. *Recall*: share of those at fault that are named. *F1*: their harmonic mean. *Blame on "
    "clean*: share of the cases without fault in which something is said to be wrong. *Cause*: where who was named "
    "is right and the view shows why, the share of right causes; *cause of two*: the planted one is first or second; "
    "*unseen cause*: where the view cannot show why (what a host did, from GPU times), the share in which no other "
    "cause is said. The two rules always name a rank, so they blame in every clean case.",
    "",
    "Families: F1 data loader, F2 CPU contention, F3 garbage collector, F4 allocator, F5 GPU throttled, F6 GPU stops "
    "completing, F7 network, F8 PCIe or NUMA, F9 checkpoint, F10 mismatched collective, F11 early exit, F12 sequence "
    "imbalance, F13 stage imbalance, F14 compile or warm-up, F15 host-wide jitter, F16 host hang, F17 clock skew "
    "(control), F18 no fault (control). Everything is generated from seeds: the numbers say how good the rules are "
    "on such cases, not on your cluster.",
)
