"""Who is told to have a wrong clock: only whom the readings show to have one, beyond their bounds."""

from __future__ import annotations

import pytest

from ingero_mcp.cli.clock_warnings import apart
from ingero_mcp.clocks import NodeClock

MS = 1_000_000


def clock(node: str, offset_ms: float, bound_ms: float | None = 1.0, **more: object) -> NodeClock:
    facts = {"cluster_id": "c", "node_id": node, "rank": None, "at_ns": 0, "method": "collectives", "reference": "a"}
    bound_ns = None if bound_ms is None else round(bound_ms * MS)
    return NodeClock(**facts | {"offset_ns": round(offset_ms * MS), "bound_ns": bound_ns} | more)  # type: ignore[arg-type]


def said(*clocks: NodeClock, threshold_ms: float = 10) -> list[str]:
    return [str(one).removeprefix("WARNING: ") for one in apart(clocks, round(threshold_ms * MS))]


@pytest.mark.parametrize(("offset_ms", "words"), [(47, "ahead of"), (-47, "behind")])
def test_of_two_the_second_is_told_apart_from_the_first(offset_ms: float, words: str) -> None:
    assert said(clock("a", 0, 0), clock("b", offset_ms, 2)) == [f"b is ~47ms {words} a (bound: 2ms)"]


def test_of_several_the_odd_one_is_told_even_if_it_is_the_reference() -> None:
    clocks = [clock("a", 0, 0), *(clock(node, 50, 0.25) for node in "bcd")]
    assert said(*clocks) == ["a is ~50ms behind b (bound: 0.25ms)"]


def test_nothing_is_said_within_the_threshold_or_the_bound_or_without_one() -> None:
    assert said(clock("a", 0), clock("b", 9)) == []
    assert said(clock("a", 0, 0), clock("b", 30, 31)) == []
    assert said(clock("a", 0, 0), clock("b", 300, None)) == []
    assert said() == []


def test_clocks_that_nothing_connects_are_not_compared() -> None:
    assert said(clock("a", 0), clock("b", 900, reference="b"), clock("c", 900, cluster_id="d")) == []


def test_the_surest_reading_counts_and_ranks_are_named_where_nodes_are_not() -> None:
    clocks = [clock("unknown", 0, 0, rank=0), clock("unknown", 80, 60, rank=1), clock("unknown", 20, 1, rank=1)]
    assert said(*clocks) == ["rank 1 is ~20ms ahead of rank 0 (bound: 1ms)"]
