"""A refusal teaches: what was wrong, where, and what to write in its stead."""

from __future__ import annotations

import pytest

from ingero_mcp.errors import GuardError, Reason
from ingero_mcp.sqlguard import check


def refusal(sql: str) -> tuple[Reason, ...]:
    with pytest.raises(GuardError) as refused:
        check(sql)
    return refused.value.reasons


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT * FROM event", "Did you mean events?"),
        ("SELECT * FROM vault", "Allowed: "),
        ("SELECT * FROM vault", "fleet://schema"),
        ("SELECT * FROM main.events", "Write events without a schema."),
        ("SELECT repeat('x', 3)", "use a literal"),
        ("SELECT quantle_cont(rank, 0.5) FROM events", "Did you mean quantile_cont?"),
        ("SELECT range(3)", "FROM range(10)"),
        ("SELECT * FROM read_csv('x')", "In FROM: generate_series"),
        ("SELECT nvl(rank, 0) FROM events", "coalesce"),
        ("SELECT node_id.upper() FROM events", "upper(node_id, ...)"),
        ("WITH events AS (SELECT 1) FROM events", "WITH my_events AS"),
        ("PIVOT events ON metric_name USING count(*)", "PIVOT events ON metric_name IN ('ncclAllReduce'"),
        ("SELECT 1; SELECT 2", "fleet.cluster.run_analysis"),
        ("SELECT rank FROM events WHERE rank = $1", "for example rank = 5"),
        ("DELETE FROM events", "This only reads."),
        ("SELECT 1::INTEGR", "Did you mean integer?"),
        ("FROM range(1000000000)", "generate_series(TIMESTAMP"),
    ],
)
def test_hint_says_what_to_do(sql: str, hint: str) -> None:
    assert hint in " ".join(reason.hint for reason in refusal(sql))


def test_place_counts_characters_of_the_text_as_given() -> None:
    text = "  SELECT 'é漢', token FROM vault"
    (reason,) = refusal(text)
    assert reason.offset == text.index("vault")


def test_place_of_a_syntax_error_is_the_engines() -> None:
    text = "SELECT rank FRM events WHERE rank ="
    (reason, *_) = refusal(text)
    assert reason.code == "syntax" and reason.offset is not None


def test_every_fault_is_named_once() -> None:
    found = refusal("SELECT repeat(token, 2), repeat(token, 3), version() FROM vault, vault AS v, other")
    assert sorted(reason.message for reason in found) == [
        "Function repeat is not allowed.",
        "Function version is not allowed.",
        "Table other is not allowed.",
        "Table vault is not allowed.",
    ]


def test_the_text_of_the_error_lists_the_reasons() -> None:
    with pytest.raises(GuardError) as refused:
        check("SELECT ? FROM vault")
    text = str(refused.value)
    assert text.startswith("SQL refused:\n- [")
    assert "[table_not_allowed] Table vault is not allowed." in text and "[parameter]" in text
