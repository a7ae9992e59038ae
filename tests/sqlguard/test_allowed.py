"""The lists name things that exist, in both parsers."""

from __future__ import annotations

import duckdb
import sqlglot
from sqlglot import exp

from ingero_mcp.sqlguard import allowed
from ingero_mcp.views import relations

# Not functions of the catalog: DuckDB's parser makes them of operators and of syntax.
SYNTAX = {"->", "<>", "coalesce", "ifnull", "unnest"}
ARGUMENTS = ("", "a", "a, b", "a, b, c", "a, 'x', 'g'", "DISTINCT a", "a ORDER BY b", "a, lambda x: x")


def _catalog(database: duckdb.DuckDBPyConnection, *kinds: str) -> set[str]:
    listed = "', '".join(kinds)
    rows = database.execute(
        f"SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type IN ('{listed}')"
    ).fetchall()
    return {str(row[0]) for row in rows}


def test_every_allowed_function_exists(database: duckdb.DuckDBPyConnection) -> None:
    exist = _catalog(database, "scalar", "aggregate", "macro", "window")
    assert allowed.SCALAR_FUNCTIONS - exist == SYNTAX
    assert _catalog(database, "table") >= allowed.TABLE_FUNCTIONS
    assert _catalog(database, "aggregate", "macro") >= allowed.AGGREGATES


def test_every_rule_is_for_an_allowed_function() -> None:
    for names in (allowed.LAMBDA_FUNCTIONS, allowed.NAMED_AGGREGATE, allowed.SMALL_PATTERNS, allowed.STORED_ARGUMENTS):
        assert set(names) <= allowed.SCALAR_FUNCTIONS


def test_every_allowed_type_exists(database: duckdb.DuckDBPyConnection) -> None:
    types = {str(row[0]).lower() for row in database.execute("SELECT type_name FROM duckdb_types()").fetchall()}
    assert types >= allowed.TYPES


def test_relations_are_the_public_ones() -> None:
    assert frozenset(relations()) == allowed.RELATIONS


def test_sqlglot_has_a_listed_class_for_every_allowed_function() -> None:
    unlisted = set()
    for name in allowed.SCALAR_FUNCTIONS:
        for arguments in ARGUMENTS if name.isidentifier() else ():
            try:
                tree = sqlglot.parse_one(f"SELECT {name}({arguments})", dialect="duckdb")
            except sqlglot.ParseError:
                continue
            classes = {type(node).__name__ for node in tree.find_all(exp.Func)} - {"Anonymous"}
            unlisted |= classes - allowed.SQLGLOT_FUNCTIONS
    assert unlisted == set()


def test_every_listed_class_exists_in_sqlglot() -> None:
    for name in allowed.SQLGLOT_NODES | allowed.SQLGLOT_FUNCTIONS | allowed.SQLGLOT_TABLE_FUNCTIONS:
        assert issubclass(getattr(exp, name), exp.Expr)
