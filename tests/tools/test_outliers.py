"""The ranking itself, on values made by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import median

import pytest

from ingero_mcp.analysis.outliers import CUTOFF, MAD_TO_SIGMA, NodeValue, cutoff, rank_nodes


def nodes(*values: float, cluster_id: str = "c") -> list[NodeValue]:
    return [NodeValue(cluster_id, f"n{place}", value, 1) for place, value in enumerate(values)]


def test_distance_is_in_robust_standard_deviations_from_the_median() -> None:
    ranking = rank_nodes(nodes(1, 2, 3, 4, 100), "above")
    worst = ranking.nodes[0]
    assert (worst.node.value, worst.peer_median, worst.difference) == (100, 3, 97)
    assert worst.distance == pytest.approx(97 / MAD_TO_SIGMA)
    assert worst.is_outlier


def test_nothing_is_ranked_of_nothing() -> None:
    assert rank_nodes([], "both").nodes == ()


@pytest.mark.parametrize(("direction", "first"), [("below", "n0"), ("above", "n5"), ("both", "n5")])
def test_direction_says_which_side_counts(direction: str, first: str) -> None:
    ranking = rank_nodes(nodes(1, 50, 51, 52, 53, 200), direction)  # type: ignore[arg-type]
    assert ranking.nodes[0].node.node_id == first


def test_two_camps_of_equal_size_have_no_outlier() -> None:
    assert not any(entry.is_outlier for entry in rank_nodes(nodes(1, 1, 5, 5), "both").nodes)


def test_a_difference_too_small_to_matter_is_no_outlier_however_tight_the_peers() -> None:
    tight = nodes(*(1 + place * 1e-9 for place in range(8)), 1.0001)
    ranking = rank_nodes(tight, "both")
    assert ranking.nodes[0].distance is not None
    assert ranking.nodes[0].distance > CUTOFF
    assert not ranking.nodes[0].is_outlier


def test_a_median_of_zero_does_not_hide_an_outlier() -> None:
    ranking = rank_nodes(nodes(0, 0, 0, 0, 3), "both")
    assert [entry.node.value for entry in ranking.nodes if entry.is_outlier] == [3]


@pytest.mark.parametrize("seed", range(20))
def test_shifting_one_node_far_finds_that_node(seed: int) -> None:
    chance = random.Random(seed)
    values = [chance.gauss(100, 1) for _ in range(chance.randint(3, 40))]
    culprit = chance.randrange(len(values))
    values[culprit] = median(values) + 60
    ranking = rank_nodes(nodes(*values), "above")
    assert ranking.nodes[0].node.node_id == f"n{culprit}"
    assert ranking.nodes[0].is_outlier


@pytest.mark.parametrize("count", [3, 4, 8, 64])
def test_nodes_that_are_alike_are_rarely_called_outliers(count: int) -> None:
    chance = random.Random(1)
    cohorts = [nodes(*(chance.gauss(100, 2) for _ in range(count))) for _ in range(200)]
    called = sum(any(entry.is_outlier for entry in rank_nodes(cohort, "both").nodes) for cohort in cohorts)
    assert called / len(cohorts) < 0.25


def test_the_ranking_does_not_depend_on_the_order_of_the_nodes() -> None:
    given = nodes(5, 3, 9, 1, 7, 100)
    shuffled = random.Random(3).sample(given, len(given))
    assert rank_nodes(given, "both").nodes == rank_nodes(shuffled, "both").nodes


def test_of_many_values_some_are_far_by_chance_so_more_is_asked_of_them() -> None:
    assert cutoff(8) == cutoff(64) == CUTOFF
    assert CUTOFF < cutoff(1000) < cutoff(80_000) < 6
    chance = random.Random(5)
    called = [
        any(entry.is_outlier for entry in rank_nodes(nodes(*(chance.gauss(100, 5) for _ in range(2000))), "both").nodes)
        for _ in range(20)
    ]
    assert sum(called) <= 5


def test_a_node_is_as_odd_as_its_oddest_series_and_stands_once() -> None:
    values = [
        NodeValue("c", f"n{node}", 100.0 + node + gpu / 10, 3, series=f"GPU {gpu}")
        for node in range(3)
        for gpu in range(4)
    ]
    values[6] = replace(values[6], value=10.0)
    ranking = rank_nodes(values, "both")
    assert ranking.nodes[0].node.node_id == "n1"
    assert len(ranking.nodes) == 3
    assert (ranking.nodes[0].node.series, ranking.nodes[0].odd, ranking.nodes[0].series) == ("GPU 2", 1, 4)


def test_what_is_said_of_many_cohorts_is_said_once() -> None:
    alone = [NodeValue("c", f"n{place:02}", 1.0, 1, cohort=f"model {place:02}") for place in range(100)]
    assert rank_nodes(alone, "both").caveats == (
        "cluster c (of 100 groups of peers, such as model 00): only one node has values, so there are no peers to "
        "compare it with",
    )
    clusters = [NodeValue(f"c{place}", "n", 1.0, 1) for place in range(100)]
    assert len(rank_nodes(clusters, "both").caveats) == 9
