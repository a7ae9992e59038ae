"""Only the guard makes a CheckedQuery, and literals come back as the values they were."""

from __future__ import annotations

import dataclasses
import math
import threading

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import GuardError
from ingero_mcp.sqlguard import CheckedQuery, check, literal


def test_holds_the_text_and_what_runs() -> None:
    query = check("  select events.rank from events where rank = 1;\n")
    assert query.text == "select events.rank from events where rank = 1;"
    assert query.sql == "SELECT events.rank FROM main.events WHERE (rank = 1)"


def test_cannot_be_made_or_changed_by_anybody_else() -> None:
    query = check("SELECT 1")
    with pytest.raises(TypeError):
        CheckedQuery("SELECT 1", "SELECT 2")
    with pytest.raises(TypeError):
        CheckedQuery(text="SELECT 1", sql="SELECT 2")
    with pytest.raises(TypeError):
        dataclasses.replace(query, sql="DROP TABLE events")
    with pytest.raises(dataclasses.FrozenInstanceError):
        query.sql = "DROP TABLE events"  # type: ignore[misc]
    with pytest.raises(TypeError):
        type("Forged", (CheckedQuery,), {})


def test_text_can_be_checked_again_to_the_same_query() -> None:
    query = check("WITH a AS (FROM events) SELECT count(*) FROM a, nodes")
    assert check(query.text) == query


def test_relations_are_qualified_and_definitions_are_not() -> None:
    sql = check("WITH a AS (FROM Events) SELECT * FROM a JOIN nodes n ON true, (SELECT 1 FROM clusters) AS c").sql
    assert sql.count("main.") == 3
    assert "main.Events" in sql and "main.nodes AS n" in sql and "main.clusters" in sql


@pytest.mark.parametrize("fence", ["```sql\n{}\n```", "```\n{}\n```", "\n``` SQL \n{}```\n", "```duckdb\r\n{}\r\n```"])
def test_a_fence_of_markdown_is_no_part_of_the_text(fence: str) -> None:
    query = check(fence.format("SELECT rank\nFROM events"))
    assert query == check("SELECT rank\nFROM events")
    assert check(query.text) == query


@pytest.mark.parametrize(
    "text", ["```python\nSELECT 1\n```", "```SELECT 1```", "```sql\nSELECT 1\n``` ```", "```", "``````"]
)
def test_what_is_no_fence_around_sql_stays_part_of_the_text(text: str) -> None:
    with pytest.raises(GuardError):
        check(text)


def test_a_place_counts_from_the_first_line_inside_the_fence() -> None:
    with pytest.raises(GuardError) as refused:
        check("```sql\nSELECT * FROM vault\n```")
    assert refused.value.sql[refused.value.reasons[0].offset :].startswith("vault")


def test_a_call_in_method_style_is_the_ordinary_call() -> None:
    assert check("SELECT e.node_id.upper() FROM events e").sql == check("SELECT upper(e.node_id) FROM events e").sql
    assert check("SELECT node_id.replace('a', 'b').count() FROM events").sql.count("count(") == 1


@pytest.mark.parametrize("text", ["e\u0301", "हिन्दी", "ไทย", "नमस्ते"])
def test_marks_that_are_part_of_words_are_text_like_any_other(text: str, database: duckdb.DuckDBPyConnection) -> None:
    query = check(f'SELECT {literal(text)} AS "{text}"')
    cursor = database.cursor().execute(query.sql)
    assert cursor.description is not None and cursor.description[0][0] == text
    assert cursor.fetchall() == [(text,)]


def test_threads_get_the_same_verdicts() -> None:
    found: list[str] = []

    def ask(number: int) -> None:
        found.extend(check(f"SELECT {turn % 5} + rank FROM events").sql for turn in range(number, number + 20))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 160 and len(set(found)) == 5


plain = st.text(st.characters(exclude_categories=["C", "Z", "M"]) | st.sampled_from(" \t\n'\"\\;-$"), max_size=40)


@settings(deadline=None)
@given(value=plain | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False))
def test_literal_comes_back_as_the_value(value: str | int | float, database: duckdb.DuckDBPyConnection) -> None:
    query = check(f"SELECT {literal(value)} AS v")
    assert database.cursor().execute(query.sql).fetchall() == [(value,)]


@pytest.mark.parametrize(("value", "text"), [(5, "5"), (-5, "(-5)"), ("it's", "'it''s'"), (True, "true")])
def test_literal_is_plain(value: str | int, text: str) -> None:
    assert literal(value) == text


def test_literal_of_what_is_no_number(database: duckdb.DuckDBPyConnection) -> None:
    row = database.cursor().execute(check(f"SELECT {literal(math.nan)}").sql).fetchone()
    assert row is not None and math.isnan(row[0])


@pytest.mark.parametrize("value", ["a\x00b", "a\u200bb", "\ud800", "a\ufe0f", "\x1b[31m"])
def test_literal_refuses_what_cannot_be_seen(value: str) -> None:
    with pytest.raises(GuardError) as refused:
        literal(value)
    assert refused.value.reasons[0].code == "invisible_character"
