"""Whose time it was: the runs of agents tell, and where two ran at once nothing does."""

from __future__ import annotations

import pytest

from ingero_mcp.importers.ingero.nodes import Nodes, ProcessNames, Session

A, B = Session("a", 100, 200), Session("b", 300, 400)


@pytest.mark.parametrize(
    ("start", "end", "node"),
    [
        (100, None, "a"), (200, None, "a"), (201, None, "unknown"), (99, None, "unknown"), (50, 100, "a"),
        (150, 350, "unknown"), (210, 299, "unknown"), (250, 300, "b"), (400, 999, "b"), (None, None, "unknown"),
    ],
)  # fmt: skip
def test_a_time_belongs_to_the_one_node_whose_agent_ran(start: int | None, end: int | None, node: str) -> None:
    assert Nodes({"a", "b"}, "given", [B, A]).at(start, end) == node


def test_two_agents_at_once_leave_it_open_and_two_runs_of_one_do_not() -> None:
    nodes = Nodes({"a", "b"}, "given", [A, Session("b", 150, 180), Session("a", 190, 0)])
    assert [nodes.at(time) for time in (140, 160, 181, 195, 10**6)] == ["a", "unknown", "a", "a", "a"]


def test_a_file_of_one_node_leaves_no_doubt() -> None:
    assert Nodes({"", "a"}, "given", [A]).at(9999) == "a"
    assert Nodes({""}, "given", []).at() == "given"


def test_very_many_runs_are_not_looked_through() -> None:
    runs = [Session("a", 10 * n, 10 * n + 5) for n in range(10_000)]
    nodes = Nodes({"a", "b"}, "given", runs)
    assert nodes.at(3) == "a"
    assert nodes.at(0, 10**9) == "unknown"


def test_a_process_id_that_changed_hands_has_no_name_in_the_other_run() -> None:
    nodes = Nodes({"a"}, "given", [A, Session("a", 300, 400)])
    names = ProcessNames(nodes, [(7, "old", 150), (8, "new", 310), (9, "when?", None)])
    assert [names.at("a", pid, time) for pid, time in ((7, 120), (7, 350), (8, 310), (9, 50), (9, 350))] == [
        "old", None, "new", "when?", None,
    ]  # fmt: skip


def test_a_name_that_may_be_of_two_nodes_is_given_to_neither() -> None:
    nodes = Nodes({"a", "b"}, "given", [A, B])
    names = ProcessNames(nodes, [(7, "of a", 150), (8, "of nobody", 250)])
    assert [names.at(node, pid, 150) for node, pid in (("a", 7), ("b", 7), ("a", 8), ("b", 8))] == [
        "of a", None, None, None,
    ]  # fmt: skip
