"""A refusal teaches: what was wrong, where, and what to write in its stead."""

from __future__ import annotations

import duckdb
import pytest

from ingero_mcp.errors import GuardError, Reason
from ingero_mcp.sqlguard import allowed, check, instead, reasons
from tests.sqlguard import statements


def refusal(sql: str) -> tuple[Reason, ...]:
    with pytest.raises(GuardError) as refused:
        check(sql)
    return refused.value.reasons


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT * FROM event", "Did you mean events?"),
        ("SELECT * FROM vault", "Only the relations of this server can be read"),
        ("SELECT * FROM 'x.parquet'", "Files cannot be read here."),
        ("SELECT * FROM spans", "SELECT * FROM events LIMIT 10"),
        ("SELECT * FROM main.events", "Write events without a schema."),
        ("SELECT table_name FROM information_schema.tables", "fleet://schema"),
        ("SELECT repeat('x', 3)", "it makes text or lists of any length, which no memory limit bounds"),
        ("SELECT repeat('x', 3)", "Write the text out"),
        ("SELECT quantle_cont(rank, 0.5) FROM events", "Did you mean quantile_cont?"),
        ("SELECT range(3)", "SELECT i FROM range(10) AS r(i)"),
        ("SELECT * FROM read_csv('x')", "it reads files or addresses"),
        ("SELECT * FROM read_csv('x')", "In FROM: generate_series"),
        ("SELECT read_csv('x')", "Files cannot be read here"),
        ("SELECT variant_type(rank) FROM events", "it can end the process on deeply nested values"),
        ("SELECT nvl(rank, 0) FROM events", "coalesce(rank, 0)"),
        ("SELECT DATE_FORMAT(timestamp_ns, '%H') FROM events", "strftime(make_timestamp_ns(timestamp_ns)"),
        ("SELECT uniqExact(rank) FROM events", "count(DISTINCT node_id)"),
        ("SELECT e.upper() FROM events e", "Write upper(e) for a method call"),
        ("WITH events AS (SELECT 1) FROM events", "WITH my_events AS"),
        ("PIVOT events ON metric_name USING count(*)", "PIVOT events ON metric_name IN ('ncclAllReduce'"),
        ("SELECT 1; SELECT 2", "Send one statement"),
        ("SELECT rank FROM events WHERE rank = $1", "rank = 5"),
        ("DELETE FROM events", "This only reads."),
        ("EXPLAIN SELECT 1", "Send the query itself"),
        ("SELECT 1::INTEGR", "Did you mean integer?"),
        ("SELECT rank::JSONB FROM events", "Use JSON."),
        ("FROM range(1000000000)", "generate_series(TIMESTAMP"),
        ("SELECT count(*)\u00a0FROM events", "'a' || chr(160) || 'b'"),
    ],
)
def test_reason_says_what_to_do(sql: str, told: str) -> None:
    assert told in " ".join(map(str, refusal(sql)))


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT TOP 10 * FROM events", "Use LIMIT at the end."),
        ("SELECT rank FROM events LIMIT 5,10", "LIMIT 10 OFFSET 5"),
        ("SELECT rank FROM events WHERE node_id ILIKE ANY ('a', 'b')", "regexp_matches"),
        ("SELECT rank FROM events WHERE node_id RLIKE '^n'", "regexp_matches(node_id, '^gpu-')"),
        ("SELECT GROUP_CONCAT(node_id SEPARATOR ',') FROM events", "string_agg(node_id, ','"),
        ("SELECT LISTAGG(node_id, ',') WITHIN GROUP (ORDER BY rank) FROM events", "The order stands inside"),
        ("SELECT quantile(0.99)(duration_ns) FROM events", "quantile_cont(duration_ns, 0.99)"),
        ("SELECT rank FROM events PREWHERE rank = 1", "Use WHERE."),
        ("SELECT rank FROM events WHERE rank = :rank", "Write the value itself"),
        ("SELECT rank FROM events WHERE rank = {{ rank }}", "Write the value itself"),
        ("SELECT * FORM events", "Did you mean FROM in place of FORM?"),
        ("SELEC rank FROM events", "Did you mean SELECT in place of SELEC?"),
        ("SELECT rank FROM events WERE rank = 1", "Did you mean WHERE in place of WERE?"),
        ("SELECT rank FROM events WHERE node_id = 'n1", "one inside it is doubled"),
        ("SELECT count(* FROM events", "never closed"),
        ("SELECT count(*) FROM events ```", "without the marks of Markdown"),
        ("SHOW COLUMNS FROM events", "fleet://schema"),
    ],
)
def test_syntax_of_another_dialect_is_answered_with_this_ones(sql: str, told: str) -> None:
    assert told in " ".join(map(str, refusal(sql)))


def test_place_counts_characters_of_the_text_as_given() -> None:
    text = "  SELECT 'é漢', token FROM vault"
    (reason,) = refusal(text)
    assert reason.offset == text.index("vault")


def test_place_of_a_syntax_error_is_the_engines() -> None:
    text = "SELECT rank FRM events WHERE rank ="
    (reason, *_) = refusal(text)
    assert reason.code == "syntax" and reason.offset is not None


# What is about the text as a whole has no place.
WHOLE = {
    "empty",
    "not_one_statement",
    "too_long",
    "too_many_brackets",
    "too_large",
    "too_deep",
    "too_many_joins",
    "grows_too_large",
}


@pytest.mark.parametrize(("sql", "codes"), statements.denied())
def test_every_reason_says_where_what_instead_and_whom_to_ask(sql: str, codes: frozenset[str]) -> None:
    found = refusal(sql)
    assert all(reason.message and reason.hint and reason.ask for reason in found)
    placed = {reason.code for reason in found if reason.offset is not None}
    assert placed or codes <= WHOLE | UNPLACED, found


# DuckDB keeps no place of these, and sqlglot reads the text in another way or not at all.
UNPLACED = {"parameter", "syntax", "construct_not_allowed", "invisible_character", "recursive_cte"}


def test_the_place_is_shown_below_the_reason() -> None:
    with pytest.raises(GuardError) as refused:
        check("SELECT rank\nFROM\tvault\nWHERE rank = 1")
    lines = str(refused.value).splitlines()
    assert lines[2] == "  line 2, column 6: FROM vault"
    assert lines[3].index("^") == lines[2].index("vault")


def test_of_a_long_line_the_part_around_the_place_is_shown() -> None:
    with pytest.raises(GuardError) as refused:
        check(f"SELECT {'rank, ' * 100} token FROM vault")
    lines = str(refused.value).splitlines()
    assert len(lines[2]) < 120 and lines[3].index("^") == lines[2].index("vault")


def test_the_relations_are_listed_once_and_the_schema_is_named() -> None:
    with pytest.raises(GuardError) as refused:
        check("SELECT foo() FROM vault, other, main.events")
    text = str(refused.value)
    assert text.count("events, nodes, clusters") == 1 and text.count("fleet://schema") == 1
    assert [line for line in text.splitlines() if line.startswith("next: ")] == [f"next: {reasons.ASK_RELATIONS}"]


def test_every_fault_is_named_once() -> None:
    found = refusal("SELECT repeat(token, 2), repeat(token, 3), version() FROM vault, vault AS v, other")
    assert sorted((reason.code, reason.message.split(":")[0].rstrip(".")) for reason in found) == [
        ("function_not_allowed", "Function repeat is not allowed"),
        ("function_not_allowed", "Function version is not allowed"),
        ("table_not_allowed", "Table other is not allowed"),
        ("table_not_allowed", "Table vault is not allowed"),
    ]


def test_the_text_of_the_error_lists_the_reasons() -> None:
    with pytest.raises(GuardError) as refused:
        check("SELECT ? FROM vault")
    text = str(refused.value)
    assert text.startswith("SQL refused:\n- [")
    assert "[table_not_allowed] Table vault is not allowed." in text and "[parameter]" in text


@pytest.mark.parametrize("name", sorted(instead.FUNCTIONS))
def test_a_habit_is_no_allowed_function(name: str) -> None:
    assert name not in allowed.SCALAR_FUNCTIONS or name in DIFFERENT


# Allowed, and refused in another form: with brackets, over a window, in FROM.
DIFFERENT = {"current_timestamp"}


@pytest.mark.parametrize(
    "example",
    sorted(
        {
            one.example
            for table in (instead.FUNCTIONS, instead.TABLES, instead.STATEMENTS)
            for one in table.values()
            if one.example
        }
        | {slip.instead.example for slip in instead.SLIPS if slip.instead.example}
    ),
)
def test_every_example_is_one_that_passes(example: str, database: duckdb.DuckDBPyConnection) -> None:
    texts = (
        example,
        f"SELECT {example} FROM events AS v(a, b)",
        f"SELECT {example} FROM events",
        f"FROM events {example}",
    )
    for text in (*texts, "SELECT date_diff('second', a, b) FROM (SELECT now() AS a, now() AS b)"):
        try:
            database.cursor().execute(check(text).sql).fetchall()
        except (GuardError, duckdb.Error):
            continue
        assert text in texts or example == "date_diff('second', a, b)"
        return
    raise AssertionError(example)
