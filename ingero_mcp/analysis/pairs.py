"""Pairs: of a job's two ranks one works longer in all steps. That it is slow and that it has more to do look alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ingero_mcp.analysis.comparison import Comparison
from ingero_mcp.analysis.counters import throttle_of
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Finding, Statement
from ingero_mcp.analysis.words import duration_text

_ALWAYS: Final = 0.9  # of the steps


def undecided(finding: Finding, comparison: Comparison, evidence: Evidence) -> Finding:
    """The finding; undecidable in a job of two ranks, if neither its past nor its GPU tells which of them it is."""
    affected, ranks = finding.affected, comparison.matrix.ranks.tolist()
    is_pair = len(ranks) == 2 and evidence.world_size in (None, 2)
    if not is_pair or not finding.culprits or affected is None:
        return finding
    rank, lateness_ns = finding.culprits[0].rank, finding.culprits[0].lateness_ns or 0.0
    if len(affected.steps) < _ALWAYS * affected.total or throttle_of(evidence, rank):
        return finding
    other = next(one for one in ranks if one != rank)
    how_much = f"rank {rank} works {duration_text(lateness_ns)} longer than rank {other} in nearly all steps"
    enable = (
        "a window from before it began, to compare with",
        "counters of both GPUs (clock, throttle reasons), and what their hosts do",
    )
    return replace(
        finding,
        verdict="undecidable",
        cause="unknown",
        confidence=0.3,
        culprits=(),
        groups=(),
        alternatives=(),
        waiting_ranks=(),
        statements=(Statement(how_much, lateness_ns / 1e6, "ms"), *finding.statements),
        enable=enable,
        summary=(
            f"Of two ranks one has the other wait: {how_much}.",
            "That it is slow and that it has more to do look the same, and there is no third to compare them with.",
            f"What would tell: {enable[0]}.",
        ),
    )
