"""Clocks that are apart: said where they would have misled, and by how much."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ingero_mcp.analysis.clocks import fit
from ingero_mcp.analysis.evidence import Evidence, Place
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.skew import skewed
from tests.analysis.seen import Seen, evidence


def job(offset_ms: float = 0.0, late_ms: float = 0.0) -> Evidence:
    """Four ranks on clocks of their own; that of rank 2 is ahead, and rank 1 enters late. All leave together."""
    dice = random.Random(3)
    seen = []
    for seq in range(60):
        enter = [seq * 50.0 + dice.uniform(0, 0.3) + (late_ms if rank == 1 else 0.0) for rank in range(4)]
        end = max(enter) + 2.0
        seen += [
            Seen(rank, seq, at + (offset_ms if rank == 2 else 0.0), end - at + dice.uniform(0, 0.02))
            for rank, at in enumerate(enter)
        ]
    return evidence(seen)


def asked(seen: Evidence) -> Statement | None:
    return skewed(seen, fit(seen.calls))


@pytest.mark.parametrize("offset_ms", [40.0, -40.0, 5000.0])
def test_a_clock_that_is_apart_is_said_to_be_with_its_host_and_how_far(offset_ms: float) -> None:
    found = asked(job(offset_ms))
    assert found is not None and found.value is not None
    assert "node-2" in found.statement
    other_way_round = "the clock of node-2" not in found.statement
    assert found.value == pytest.approx(-offset_ms if other_way_round else offset_ms, abs=1.0)


def test_clocks_that_agree_are_not_spoken_of() -> None:
    assert asked(job()) is None


def test_a_rank_that_is_late_is_no_clock() -> None:
    assert asked(job(late_ms=20.0)) is None


def test_one_clock_cannot_be_apart() -> None:
    one = job(40.0)
    together = replace(one, calls=replace(one.calls, clock=one.calls.clock * 0))
    assert asked(together) is None
    assert asked(evidence()) is None


def test_a_host_without_a_name_is_called_by_its_rank() -> None:
    seen = replace(job(40.0), places={rank: Place("unknown") for rank in range(4)})
    found = asked(seen)
    assert found is not None
    assert "rank 2" in found.statement and "unknown" not in found.statement
