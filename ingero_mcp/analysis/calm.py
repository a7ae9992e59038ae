"""Calm: nothing was found. That all is well, or that it cannot be told, and what would tell."""

from __future__ import annotations

from typing import Final

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.analysis.clocks import ClockFit
from ingero_mcp.analysis.comparison import Comparison
from ingero_mcp.analysis.evidence import Evidence, Sign
from ingero_mcp.analysis.findings import Finding, Statement
from ingero_mcp.analysis.skew import skewed
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.words import duration_text, plural

LEAST_STEPS: Final = 4
LEAST_RANKS: Final = 2


def too_little(evidence: Evidence, steps: Steps) -> tuple[Finding, ...]:
    """Undecidable, with what is missing; nothing if a recorder or a monitor says that all is well."""
    if evidence.dumps or _flags(evidence):
        return ()
    ranks = len(np.unique(evidence.calls.rank))
    if ranks < LEAST_RANKS:
        missing = f"only collectives of {plural(ranks, 'rank')} were seen, and a rank needs peers to be compared with"
        enable: tuple[str, ...] = ("the collectives of the other ranks: the probe on every host, or their traces",)
    elif len(steps) < LEAST_STEPS:
        missing = f"the window holds {plural(len(steps), 'step')}, too few to tell what is usual"
        enable = ("a longer window",)
    else:
        missing = "collectives were only enqueued: nothing says how long a rank worked or waited"
        enable = (
            "the probe's own-time attributes (ingero.cpu_ns, blocked_ns, runq_ns) or synchronize calls",
            "GPU timing of collectives (NCCL profiler plugin)",
        )
    return (
        Finding(
            "undecidable",
            "unknown",
            0.1,
            (Statement(missing),),
            enable=enable,
            summary=(
                "Whether a rank holds the others up cannot be told.",
                f"{missing[0].upper()}{missing[1:]}.",
                f"What would tell: {enable[0]}.",
            ),
        ),
    )


def healthy(evidence: Evidence, steps: Steps, comparison: Comparison | None, clocks: ClockFit) -> tuple[Finding, ...]:
    """Nothing holds the job up, as far as its ranks were seen."""
    shift = skewed(evidence, clocks) if evidence.hosts else None
    durations = steps.duration_ns[np.isfinite(steps.duration_ns)]
    usual = float(np.median(durations)) if len(durations) else None
    seen = len(comparison.matrix.ranks) if comparison is not None else len(evidence.dumps) or len(_flags(evidence))
    expected = max([seen, evidence.world_size or 0])
    return (
        Finding(
            "healthy",
            "clock_skew" if shift else "none",
            round((0.8 if comparison is not None else 0.5) * (0.5 + 0.5 * seen / max(expected, 1)), 2),
            tuple(_calm(evidence, comparison)) + ((shift,) if shift else ()),
            baseline_step_ns=usual,
            summary=(
                _nothing(steps, comparison, seen, expected, usual),
                "The clocks of its hosts are apart, which looks like lateness and is none."
                if shift
                else "Differences between ranks are within their usual spread."
                if comparison is not None
                else "How long its steps take was not recorded.",
                "If it is slower than before, compare with an earlier window.",
            ),
        ),
    )


def _nothing(steps: Steps, comparison: Comparison | None, seen: int, expected: int, usual: float | None) -> str:
    if comparison is None:
        return "Nothing that was recorded says that this job is held up."
    whom = "this job" if seen >= expected else f"the {seen} of {expected} ranks that were seen"
    how_long = f" of {duration_text(usual)}" if usual else ""
    return f"Nothing holds {whom} up: {plural(len(steps), 'step')}{how_long}, no rank out of line."


def _calm(evidence: Evidence, comparison: Comparison | None) -> list[Statement]:
    found = []
    if comparison is not None:
        sigma = max(comparison.sigma_ns.values(), default=0.0)
        found.append(
            Statement(
                f"own work of {len(comparison.matrix.ranks)} ranks differs by {duration_text(sigma)} from step to step "
                "(one spread), and nobody's by more than chance",
                sigma / 1e6,
                "ms",
            )
        )
    if flags := _flags(evidence):
        ids = tuple(sign.event_id for sign in flags[:4])
        found.append(Statement(f"none of {len(flags)} ranks is flagged as hanging", event_ids=ids))
    if evidence.dumps:
        found.append(Statement(f"the recorders of {len(evidence.dumps)} ranks hold no collective that is waited for"))
    return found


def _flags(evidence: Evidence) -> list[Sign]:
    return [sign for sign in evidence.signs if sign.kind == semconv.HANG_FLAG]
