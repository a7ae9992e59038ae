"""What would outgrow the engine's limits is refused, and ordinary statements of the same shape are not."""

from __future__ import annotations

import pytest

from ingero_mcp.errors import GuardError
from ingero_mcp.sqlguard import allowed, check


def _codes(sql: str) -> set[str]:
    try:
        check(sql)
    except GuardError as error:
        return {reason.code for reason in error.reasons}
    return set()


def aliases(steps: int) -> str:
    items = ", ".join(f"x{step - 1} + x{step - 1} AS x{step}" for step in range(1, steps + 1))
    return f"SELECT rank AS x0, {items} FROM events"


def doubled(steps: int) -> str:
    text = "SELECT node_id AS s FROM events"
    for _ in range(steps):
        text = f"SELECT s || s AS s FROM ({text})"
    return text


def definitions(steps: int) -> str:
    parts = [f"c{step} AS (SELECT a.rank FROM c{step - 1} a, c{step - 1} b)" for step in range(1, steps + 1)]
    return f"WITH c0 AS (SELECT rank FROM events), {', '.join(parts)} SELECT count(*) FROM c{steps}"


def stars(steps: int) -> str:
    return "SELECT 1 FROM " + "(SELECT *, * FROM " * steps + "events" + ")" * steps


@pytest.mark.parametrize("shape", [aliases, doubled, definitions, stars])
def test_doubling_is_allowed_a_few_times_only(shape: object) -> None:
    assert callable(shape)
    assert _codes(shape(3)) == set()
    assert _codes(shape(16)) == {"grows_too_large"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list_reduce(list(rank), lambda a, b: a + b) FROM events",
        "SELECT list_reduce(list(rank), lambda a, b: CASE WHEN a > b THEN a ELSE b END) FROM events",
        "SELECT list_reduce(list(node_id), lambda a, b: a || ',' || b) FROM events",
        "SELECT list_transform(list(rank), lambda r: node_id || ':' || r) FROM events GROUP BY node_id",
        "SELECT list_filter(list(rank), lambda r: list_contains([1, 2, 3], r)) FROM events",
        "SELECT [[x + y FOR y IN [1, 2, 3]] FOR x IN [1, 2, 3]]",
        "SELECT string_agg(f, ',') FROM (SELECT unnest(string_split(attrs_json, ',')) AS f FROM events)",
        "SELECT list(r) FROM (SELECT node_id, list(rank) AS r FROM events GROUP BY node_id)",
        "SELECT replace(replace(replace(metric_name, 'nccl', ''), 'cuda', ''), 'Reduce', 'R') FROM events",
        "SELECT regexp_replace(regexp_replace(node_id, '[0-9]+', 'N', 'g'), '-', '_', 'g') FROM events",
        "SELECT attrs_json LIKE '%' || metric_name || '%' FROM events",
        "SELECT json_contains(attrs_json, '{\"a\":1}') FROM events",
        "SELECT array_to_string(list(node_id), ', ') FROM events",
        "SELECT * FROM events PIVOT (count(*) FOR rank IN (0, 1, 2, 3, 4, 5, 6, 7))",
    ],
)
def test_ordinary_lists_and_texts_pass(sql: str) -> None:
    assert _codes(sql) == set()


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT " + "(" * 700 + "1" + ")" * 700, "too_many_brackets"),
        ("SELECT '" + "x" * allowed.MAX_CHARS + "'", "too_long"),
        ("SELECT " + "NOT " * 500 + "true", "too_deep"),
        ("SELECT 1" + " + 1" * 500, "too_deep"),
        ("SELECT " + "list_transform([1], lambda x: " * 6 + "1" + ")" * 6, "grows_too_large"),
        ("SELECT 1" + " UNION ALL SELECT 1" * 1000, "too_large"),
        ("SELECT rank IN (" + ", ".join(map(str, range(3500))) + ") FROM events", "too_large"),
        (
            "SELECT 1 FROM events e0" + "".join(f" JOIN events e{i} USING (rank)" for i in range(1, 30)),
            "too_many_joins",
        ),
    ],
    ids=lambda value: value if len(value) < 30 else value[:20],
)
def test_size_has_limits(sql: str, code: str) -> None:
    assert code in _codes(sql)
