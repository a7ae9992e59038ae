"""Ingero's threshold: its formula, its quorum, its smoothing, and that no minority can move it far."""

from __future__ import annotations

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp.analysis.threshold import NONE, Rule, threshold_of

UNSMOOTHED = Rule(ema_alpha=1.0)
scores = st.floats(0, 1)
many = st.lists(scores, min_size=5, max_size=60)


def test_it_is_the_median_less_k_robust_deviations() -> None:
    found = threshold_of([0.90, 0.92, 0.94, 0.96, 0.98, 0.30], Rule(k=2.0))
    assert (found.median, found.nodes, found.quorum_met) == (pytest.approx(0.93), 6, True)
    assert found.mad == pytest.approx(0.03)
    assert found.value == pytest.approx(0.93 - 2 * 0.03 * 1.4826)
    assert found.stragglers == 1


@pytest.mark.parametrize(("nodes", "met"), [(0, False), (4, False), (5, True), (6, True)])
def test_under_five_nodes_there_is_no_threshold(nodes: int, met: bool) -> None:
    found = threshold_of([0.9] * nodes, Rule())
    assert (found.quorum_met, found.nodes) == (met, nodes)
    assert found.value == (0.9 if met else 0.0)


@given(many, st.lists(scores, max_size=59))
def test_a_minority_cannot_move_it_beyond_what_the_others_span(healthy: list[float], slow: list[float]) -> None:
    slow = slow[: (len(healthy) - 1) // 2]
    found = threshold_of([*healthy, *slow], UNSMOOTHED)
    low, high = min(healthy), max(healthy)
    assert low <= found.median <= high
    assert found.mad <= high - low
    assert low - 2 * 1.4826 * (high - low) - 1e-9 <= found.value <= high


@given(many, st.floats(1, 4), st.floats(0.001, 1), st.none() | scores)
def test_it_lies_between_the_formula_and_what_it_was(
    own: list[float], k: float, alpha: float, before: float | None
) -> None:
    center = median(own)
    exact = center - k * 1.4826 * median(abs(score - center) for score in own)
    found = threshold_of(own, Rule(k=k, ema_alpha=alpha), before).value
    ends = [exact] if before is None else [exact, before]
    assert min(ends) - 1e-9 <= found <= max(ends) + 1e-9


@given(many, st.floats(0.05, 1), scores)
def test_smoothing_ends_at_the_formula(own: list[float], alpha: float, before: float) -> None:
    exact = threshold_of(own, UNSMOOTHED).value
    found = before
    for _ in range(math.ceil(math.log(1e-4) / math.log(1 - alpha)) if alpha < 1 else 1):
        nearer = threshold_of(own, Rule(ema_alpha=alpha), found).value
        assert abs(nearer - exact) <= abs(found - exact) + 1e-12
        found = nearer
    assert found == pytest.approx(exact, abs=1e-3)


@given(many, st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), max_size=30))
def test_what_is_no_number_counts_for_nothing(own: list[float], odd: list[float]) -> None:
    assert threshold_of([*odd, *own], Rule()) == threshold_of(own, Rule())
    assert threshold_of(odd, Rule()) == NONE


def test_a_score_at_the_threshold_is_no_straggler() -> None:
    assert threshold_of([0.9] * 8, Rule()).stragglers == 0
    assert threshold_of([0.9] * 7 + [0.9 - 1e-6], Rule()).stragglers == 1
