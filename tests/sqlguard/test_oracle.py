"""The engine as the judge: whatever passes the guard never shows what the private tables hold.

The generated queries nest definitions, set operations and subqueries in every position, with names that are at one
place a common table expression and at another a private table of the same name.
"""

from __future__ import annotations

import duckdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import GuardError
from ingero_mcp.sqlguard import check
from tests.sqlguard.conftest import MARK
from tests.sqlguard.fuzz.bait import PRIVATE


@st.composite
def queries(draw: st.DrawFn, depth: int = 3) -> str:
    """A query with one column x."""
    definitions = []
    if depth and draw(st.booleans()):
        for name in draw(st.lists(st.sampled_from(PRIVATE), min_size=1, max_size=3, unique=True)):
            materialized = draw(st.sampled_from(("", "MATERIALIZED ", "NOT MATERIALIZED ")))
            definitions.append(f"{name}(x) AS {materialized}({draw(queries(depth - 1))})")
    text = draw(bodies(depth))
    if depth and not draw(st.integers(0, 4)):
        text = f"SELECT x FROM ({text}) ORDER BY (SELECT x FROM {draw(names)} LIMIT 1) LIMIT 5"
    return f"WITH {', '.join(definitions)} {text}" if definitions else text


names = st.sampled_from((*PRIVATE, *map(str.upper, PRIVATE), *(f'"{name}"' for name in PRIVATE)))


@st.composite
def bodies(draw: st.DrawFn, depth: int) -> str:
    inner = st.deferred(lambda: queries(depth - 1))
    shapes = ["SELECT rank AS x FROM events LIMIT 2", "SELECT x FROM {name}", "SELECT x FROM {name}", "TABLE {name}"]
    if depth:
        shapes += [
            "({query}) UNION ALL ({query})",
            "SELECT * FROM ({query}) AS s",
            "SELECT ({query} LIMIT 1) AS x FROM {name}",
            "SELECT s.x FROM {name} AS s, LATERAL ({query}) AS l(y)",
            "SELECT s.x FROM {name} AS s JOIN ({query}) AS j(y) ON true",
            "SELECT list_transform([1], lambda g: (SELECT max(x) FROM ({query}) AS q(x))) AS x",
            "SELECT x FROM {name} WHERE x IN (SELECT x FROM {name})",
            "SELECT x FROM {name} WHERE EXISTS ({query})",
            "SELECT max(x) AS x FROM ({query}) AS q(x)",
            "SELECT x FROM (VALUES ((SELECT x FROM {name} LIMIT 1))) AS v(x)",
            "SELECT x FROM unnest((SELECT list(x) FROM {name})) AS u(x)",
            "SELECT x FROM {name} QUALIFY row_number() OVER (ORDER BY (SELECT max(x) FROM {name})) < 9",
        ]
    text: str = draw(st.sampled_from(shapes))
    while "{name}" in text:
        text = text.replace("{name}", draw(names), 1)
    while "{query}" in text:
        text = text.replace("({query} LIMIT 1)", f"(SELECT x FROM ({draw(inner)}) AS o(x) LIMIT 1)", 1)
        text = text.replace("{query}", draw(inner), 1)
    return text


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sql=queries())
def test_what_passes_never_shows_a_private_table(sql: str, database: duckdb.DuckDBPyConnection) -> None:
    try:
        query = check(sql)
    except GuardError:
        return
    cursor = database.cursor()
    try:
        shown = str(cursor.execute(query.sql).fetchmany(50))
    except duckdb.Error as error:
        shown = str(error)
    assert MARK not in shown
    assert "does not exist" not in shown, "the guard took for a definition what the engine looks up as a table"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sql=queries(depth=2))
def test_a_database_without_private_tables_runs_the_same_queries(sql: str, database: duckdb.DuckDBPyConnection) -> None:
    """If a name that passed were a table to the engine, it would be missing here."""
    try:
        query = check(sql)
    except GuardError:
        return
    with duckdb.connect(config={"threads": "1"}) as empty:
        empty.execute("CREATE TABLE events AS SELECT 1 AS rank")
        try:
            empty.execute(f"EXPLAIN {query.sql}")
        except duckdb.CatalogException as error:
            raise AssertionError(query.sql) from error
        except duckdb.Error:
            return
