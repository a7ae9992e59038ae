"""Quantiles of durations of which only the slow ones were kept."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as some

from ingero_mcp.analysis.chains.sampled import FRACTIONS, Sampled


def kept(durations: list[int], counted: int = 0, counted_ns: int = 0) -> Sampled:
    ordered = sorted(durations)
    quantiles = [ordered[max(ceil(share * len(ordered)), 1) - 1] for share in FRACTIONS]
    return Sampled(len(ordered), quantiles, counted, counted_ns)


def test_what_was_only_counted_stands_at_its_mean_and_pulls_the_median_down() -> None:
    # 100 slow ones of 1 ms among 10,000 of 10 us: of those that were kept the median is 1 ms, of all it is 10 us.
    one = kept([1_000_000] * 100, counted=9_900, counted_ns=9_900 * 10_000)
    assert one.count == 10_000
    assert one.quantile_ns(0.5) == 10_000
    assert one.quantile_ns(0.99) == 10_000
    assert one.quantile_ns(0.991) == 1_000_000


def test_kept_ones_that_are_shorter_than_the_mean_come_first() -> None:
    one = kept([1] * 10 + [1000] * 10, counted=80, counted_ns=80 * 100)
    assert [one.quantile_ns(share) for share in (0.05, 0.5, 0.9, 0.95)] == [1, 100, 100, 1000]


def test_of_nothing_kept_all_are_the_mean() -> None:
    assert Sampled(0, (), 4, 400).quantile_ns(0.99) == 100


@given(some.lists(some.integers(0, 10**9), min_size=1, max_size=30))
def test_without_counted_ones_it_is_the_nearest_rank(durations: list[int]) -> None:
    one = kept(durations)
    ordered = sorted(durations)
    for share in (0.5, 0.95, 0.99):
        rank = max(ceil(share * len(ordered)), 1)
        # As exact as the fractions are fine: one rank off at most in so short a list.
        assert one.quantile_ns(share) in ordered[rank - 1 : rank + 1]
