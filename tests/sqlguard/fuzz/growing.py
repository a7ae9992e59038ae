"""Statements whose values, columns or plan multiply; how often is drawn, so that many stay just inside the bounds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Growth = Callable[[int], str]


def grown(rng: Random) -> str:
    """One of the shapes, of some size."""
    return rng.choice(SHAPES)(rng.randint(1, 26))


def _aliases(steps: int) -> str:
    items = ", ".join(f"x{step - 1} || x{step - 1} AS x{step}" for step in range(1, steps + 1))
    return f"SELECT attrs_json AS x0, {items} FROM events"


def _nested(steps: int) -> str:
    return "SELECT s || s AS s FROM (" * steps + "SELECT attrs_json AS s FROM events" + ")" * steps


def _lengths(steps: int) -> str:
    return f"SELECT max(length(s)) FROM ({_nested(steps)})"


def _stars(steps: int) -> str:
    return "SELECT 1 FROM " + "(SELECT *, * FROM " * steps + "events" + ")" * steps


def _definitions(steps: int) -> str:
    parts = [f"c{step} AS (SELECT a.rank FROM c{step - 1} a, c{step - 1} b)" for step in range(1, steps + 1)]
    return f"WITH c0 AS (SELECT rank FROM events LIMIT 1), {', '.join(parts)} SELECT count(*) FROM c{steps}"


def _reduced(steps: int) -> str:
    return f"SELECT list_reduce([{', '.join(['node_id'] * (steps + 1))}], lambda a, b: a || a) FROM events"


def _replaced(steps: int) -> str:
    text = "attrs_json"
    for step in range(steps % 8 + 1):
        text = f"replace({text}, '{step % 2}', '{str((step + 1) % 2) * steps * 4}')"
    return f"SELECT length({text}) FROM events"


def _lists(steps: int) -> str:
    rows = 1 << min(steps, 19)
    return f"SELECT list_transform(l, lambda x: l) FROM (SELECT list(i) AS l FROM range({rows}) r(i))"


def _joined(steps: int) -> str:
    return f"SELECT array_to_string([{', '.join(['s'] * steps)}], s) FROM ({_nested(steps % 8)})"


def _json(steps: int) -> str:
    rows = 1 << min(steps, 19)
    return f"SELECT json_contains(string_agg('[', '') || string_agg(']', ''), '1') FROM range({rows})"


def _patterns(steps: int) -> str:
    rows = 1 << min(steps, 17)
    return f"SELECT string_agg('ab', '') LIKE '%' || string_agg('ba', '') || '%' FROM range({rows})"


SHAPES: tuple[Growth, ...] = (
    *(_aliases, _nested, _lengths, _stars, _definitions, _reduced, _replaced, _lists, _joined, _json, _patterns),
)
