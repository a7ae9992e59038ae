"""Mutations of the words: the same thing, or nearly, said in another of the ways that SQL has for it."""

from __future__ import annotations

import re
from random import Random

from tests.sqlguard.fuzz.tokens import is_word, tokens

_ALIASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?<![<>=!:])=(?!=)", ("==", "<>", "IS NOT DISTINCT FROM", "!=", "~~", "LIKE", "->", "^@")),
    (r"<>|!=", ("IS DISTINCT FROM", "<>", "!=", "!~~")),
    (r"(\w+)::(\w+)", (r"CAST(\1 AS \2)", r"TRY_CAST(\1 AS \2)", r"\2 '\1'", r"(\1)::\2[]")),
    (r"LIMIT (\d+)", (r"FETCH FIRST \1 ROWS ONLY", r"LIMIT \1%", r"OFFSET \1", "LIMIT ALL", r"LIMIT (SELECT \1)")),
    (r"SELECT \* FROM (\w+)", (r"FROM \1", r"TABLE \1", r"FROM \1 SELECT *", r"SELECT COLUMNS(*) FROM \1")),
    (r"SELECT (.+?) FROM (\w+)", (r"FROM \2 SELECT \1", r"SELECT DISTINCT \1 FROM \2", r"SELECT ALL \1 FROM \2")),
    (r"(\w+) AS (\w+)", (r"\1 \2", r'\1 "\2"', r"\1 '\2'", r"\2: \1", r"\1 AS \2(\1)")),
    (r"UNION ALL|UNION|INTERSECT|EXCEPT", ("UNION", "UNION ALL BY NAME", "INTERSECT ALL", "EXCEPT", "UNION BY NAME")),
    (
        r"LEFT JOIN|CROSS JOIN|JOIN",
        ("SEMI JOIN", "ANTI JOIN", "ASOF JOIN", "POSITIONAL JOIN", "NATURAL JOIN", "NEAREST"),
    ),
    (r"lambda (\w+):", (r"\1 ->", r"(\1) ->", r"lambda \1, i:")),
    (r"\bIN \(", ("= ANY (", "NOT IN (", "IN ((", "= ALL (")),
    (r"EXISTS", ("NOT EXISTS", "ARRAY", "UNIQUE", "ANY")),
    (r"WITH (?!RECURSIVE|ORD)", ("WITH RECURSIVE ", "WITH x AS (SELECT 1), ")),
    (r"AS (?:MATERIALIZED )?\(", ("AS NOT MATERIALIZED (", "AS MATERIALIZED (", "AS (FROM ", "(x) AS (")),
    (r"count\(\*\)", ("count()", "count(DISTINCT *)", "count(*) OVER ()", "count(COLUMNS(*))", "list(x)")),
    (r"\|\|", ("+", "<->", "^@", "->>", "||")),
    (r"WHERE", ("HAVING", "QUALIFY", "ON", "AND", "ORDER BY", "GROUP BY", "LIMIT", "USING SAMPLE")),
    (r"SELECT", ("SELECT DISTINCT", "SELECT *,", "VALUES", "FROM", "EXPLAIN SELECT", "DESCRIBE SELECT", "SUMMARIZE")),
    (r"ORDER BY", ("GROUP BY", "DISTINCT ON", "PARTITION BY", "WINDOW w AS")),
    (
        r"\bFROM (\w+)",
        (r"FROM \1 PIVOT (count(*) FOR x IN (1))", r"FROM \1 AT (VERSION => 1)", r"FROM \1 TABLESAMPLE 50%"),
    ),
    (
        r"(\w+)\(([^()]*)\)",
        (r"(\2).\1()", r"main.\1(\2)", r"\1(\2) OVER ()", r"\1(DISTINCT \2)", r"list_aggregate(\2, '\1')"),
    ),
)


def alias(rng: Random, sql: str) -> str:
    """One keyword or operator in another spelling."""
    for pattern, spellings in rng.sample(_ALIASES, len(_ALIASES)):
        places = list(re.finditer(pattern, sql, re.IGNORECASE))
        if places:
            found = rng.choice(places)
            return sql[: found.start()] + found.expand(rng.choice(spellings)) + sql[found.end() :]
    return sql


def without_token(rng: Random, sql: str) -> str:
    """One token less."""
    parts = tokens(sql)
    if parts:
        del parts[rng.randrange(len(parts))]
    return "".join(parts)


def moved_token(rng: Random, sql: str) -> str:
    """One token at the place of another."""
    parts = tokens(sql)
    if len(parts) > 1:
        one, other = rng.sample(range(len(parts)), 2)
        parts[one], parts[other] = parts[other], parts[one]
    return "".join(parts)


def renamed(rng: Random, sql: str) -> str:
    """One name becomes another one of the statement, everywhere: definitions that shadow, aliases that collide."""
    names = sorted({token for token in tokens(sql) if is_word(token) and token.islower()})
    if len(names) < 2:
        return sql
    old, new = rng.sample(names, 2)
    return "".join(new if token == old else token for token in tokens(sql))
