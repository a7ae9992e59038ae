"""The walk over DuckDB's tree fails closed: what a later version may add is refused until it is listed."""

from __future__ import annotations

from typing import Any

import pytest

from ingero_mcp.sqlguard.duckdb_opinion import check_with_duckdb
from ingero_mcp.sqlguard.engine import Tree, parse


def node(tree: Tree) -> dict[str, Any]:
    found: dict[str, Any] = tree["statements"][0]["node"]
    return found


def codes(tree: Tree, *, rendered: bool = False) -> list[str]:
    return [reason.code for reason in check_with_duckdb(tree, rendered=rendered).reasons]


def test_unknown_field_is_refused() -> None:
    tree = parse("SELECT rank FROM events")
    assert codes(tree) == []
    node(tree)["future_clause"] = {"anything": 1}
    assert codes(tree) == ["construct_not_allowed"]


@pytest.mark.parametrize("place", ["from_table", "where_clause"])
def test_unknown_kind_of_node_is_refused(place: str) -> None:
    tree = parse("SELECT rank FROM events WHERE rank = 1")
    key = "class" if "class" in node(tree)[place] else "type"
    node(tree)[place] |= {key: "FUTURE_KIND"}
    assert codes(tree) == ["construct_not_allowed"]


def test_unknown_part_of_a_definition_is_refused() -> None:
    tree = parse("WITH a AS (SELECT 1) SELECT * FROM a")
    node(tree)["cte_map"]["map"][0]["search_clause"] = {}
    assert codes(tree) == ["construct_not_allowed"]


def test_only_a_function_can_be_a_table_function() -> None:
    tree = parse("SELECT * FROM range(3)")
    node(tree)["from_table"]["function"] |= {"class": "COLUMN_REF", "column_names": ["x"]}
    assert "construct_not_allowed" in codes(tree)


def test_a_name_that_is_told_in_two_ways_is_refused() -> None:
    tree = parse("SELECT rank FROM events")
    node(tree)["from_table"]["schema_name"] = "other"
    assert codes(tree) == ["qualified_table"]


def test_rendered_text_has_to_be_qualified() -> None:
    assert codes(parse("SELECT rank FROM main.events"), rendered=True) == []
    assert codes(parse("SELECT rank FROM events"), rendered=True) == ["table_not_allowed"]
    assert codes(parse("SELECT rank FROM memory.main.events"), rendered=True) == ["qualified_table"]
    assert codes(parse("WITH a AS (SELECT 1) SELECT * FROM main.a"), rendered=True) == ["qualified_table"]
