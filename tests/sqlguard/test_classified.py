"""Every function of the engine was judged: allowed or refused where it can stand, and not both.

A new version of DuckDB that brings a function fails here until somebody has looked at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from ingero_mcp.sqlguard import allowed
from ingero_mcp.sqlguard.refused import REFUSED, refused

# Where a function of each kind can stand: as a value, in FROM, behind PRAGMA.
PLACES = {
    "values": ("scalar", "aggregate", "macro", "window"),
    "tables": ("table", "table_macro"),
    "pragmas": ("pragma",),
}
ALLOWED = {"values": allowed.SCALAR_FUNCTIONS, "tables": allowed.TABLE_FUNCTIONS, "pragmas": frozenset[str]()}
# Not functions of the catalog: DuckDB's parser makes them of operators and of syntax.
SYNTAX = {"->", "<>", "coalesce", "ifnull", "unnest"}


def of_engine(database: duckdb.DuckDBPyConnection, place: str) -> set[str]:
    kinds = "', '".join(PLACES[place])
    rows = database.execute(
        f"SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type IN ('{kinds}') AND internal"
    ).fetchall()
    return {str(row[0]) for row in rows}


def patterns(place: str) -> list[str]:
    return [pattern for one in REFUSED for pattern in getattr(one, place)]


def is_refused(name: str, place: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns(place))


def test_every_kind_of_function_has_a_place(database: duckdb.DuckDBPyConnection) -> None:
    kinds = {str(row[0]) for row in database.execute("SELECT function_type FROM duckdb_functions()").fetchall()}
    assert kinds == {kind for place in PLACES.values() for kind in place}


@pytest.mark.parametrize("place", PLACES)
def test_every_function_of_the_engine_is_classified(place: str, database: duckdb.DuckDBPyConnection) -> None:
    unjudged = {name for name in of_engine(database, place) - ALLOWED[place] if not is_refused(name, place)}
    assert unjudged == set(), "nobody has classified these: allow them in allowed.py or refuse them in refused.py"


@pytest.mark.parametrize("place", PLACES)
def test_no_function_is_classified_that_does_not_exist(place: str, database: duckdb.DuckDBPyConnection) -> None:
    exist = of_engine(database, place)
    assert [one for one in patterns(place) if not any(fnmatchcase(name, one) for name in exist)] == []
    assert ALLOWED[place] - exist - SYNTAX == set()


@pytest.mark.parametrize("place", PLACES)
def test_no_function_is_allowed_and_refused_at_the_same_place(place: str) -> None:
    assert {name for name in ALLOWED[place] if is_refused(name, place)} == set()


@pytest.mark.parametrize("place", PLACES)
def test_no_function_is_refused_for_two_reasons(place: str, database: duckdb.DuckDBPyConnection) -> None:
    for name in of_engine(database, place):
        assert sum(fnmatchcase(name, pattern) for pattern in patterns(place)) <= 1, name


def test_one_name_can_be_allowed_at_one_place_and_refused_at_another() -> None:
    assert "histogram" in allowed.SCALAR_FUNCTIONS and is_refused("histogram", "tables")
    assert "range" in allowed.TABLE_FUNCTIONS and is_refused("range", "values")


def test_a_refusal_knows_its_class_where_the_function_stands() -> None:
    files = refused("READ_CSV", in_from=True)
    assert files is not None and files is refused("read_csv", in_from=False)
    assert refused("no_such_function", in_from=False) is None


# What sqlglot calls by a class of its own, for a name that is allowed, has to be on the list by that class.


def classes() -> Iterator[tuple[str, str]]:
    """Each class of sqlglot for functions with a name by which it is written."""
    for name, kind in exp.FUNCTION_BY_NAME.items():
        yield kind.__name__, name.lower()


def test_a_class_of_sqlglot_for_an_allowed_name_is_listed() -> None:
    unlisted = set()
    for kind, name in classes():
        if name not in allowed.SCALAR_FUNCTIONS or kind in allowed.SQLGLOT_FUNCTIONS:
            continue
        # By name alone; what the dialect does with that name counts, and some names it leaves to the engine.
        for arguments in ("a", "a, b", "a, b, c", ""):
            try:
                tree = sqlglot.parse_one(f"SELECT {name}({arguments})", dialect="duckdb")
            except sqlglot.ParseError:
                continue
            unlisted |= {(name, type(node).__name__) for node in tree.find_all(exp.Func)}
    assert {(name, kind) for name, kind in unlisted if kind not in allowed.SQLGLOT_FUNCTIONS | {"Anonymous"}} == set()


# What the parser makes of words and signs: AND, CAST, x IN (...), <@, ~~*, `= ALL (...)`; DuckDB's tree knows better.
BY_SYNTAX = {
    "And",
    "ArrayContainedBy",
    "Case",
    "Cast",
    "Collate",
    "Columns",
    "CurrentTimestamp",
    "Exists",
    "Extract",
    "Grouping",
    "GroupingId",
    "Localtime",
    "Or",
    "RegexpILike",
    "ToMap",
    "Try",
    "TryCast",
}


def test_each_listed_class_is_met_by_an_allowed_name_or_by_syntax() -> None:
    """A class on the list that no allowed name leads to could let in a function that nobody allowed."""
    met = {kind for kind, name in classes() if name in allowed.SCALAR_FUNCTIONS | allowed.TABLE_FUNCTIONS}
    others = allowed.SQLGLOT_FUNCTIONS - met - _met_by_parsing()
    assert others == BY_SYNTAX


def _met_by_parsing() -> set[str]:
    found: set[str] = set()
    for name in sorted(allowed.SCALAR_FUNCTIONS):
        for arguments in ("", "a", "a, b", "a, b, c", "a, 'x', 'g'", "DISTINCT a") if name.isidentifier() else ():
            try:
                tree = sqlglot.parse_one(f"SELECT {name}({arguments})", dialect="duckdb")
            except sqlglot.ParseError:
                continue
            found |= {type(node).__name__ for node in tree.find_all(exp.Func)}
    return found
