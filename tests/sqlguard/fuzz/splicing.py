"""Mutations that put one statement into another, or make one of the parts of two."""

from __future__ import annotations

import re
from random import Random

from tests.sqlguard.fuzz.bait import PRIVATE
from tests.sqlguard.fuzz.tokens import is_word, tokens

WRAPPINGS = (
    "SELECT * FROM ({}) AS q",
    "WITH q AS ({}) SELECT * FROM q",
    "WITH q AS MATERIALIZED ({}) SELECT 1",
    "SELECT ({}) AS v",
    "SELECT rank FROM events WHERE EXISTS ({})",
    "SELECT rank FROM events WHERE rank IN ({})",
    "(SELECT 1) UNION ALL ({})",
    "SELECT rank, (WITH q AS ({}) SELECT count(*) FROM q) FROM events",
    "SELECT * FROM events, LATERAL ({}) AS q",
    "SELECT rank FROM events ORDER BY ({})",
    "SELECT [v FOR v IN [1] IF EXISTS ({})]",
    "VALUES (({}))",
)
"""Whatever is refused by itself is refused in each of these."""

_MORE = (
    "SELECT list_transform([1], lambda g: ({}))",
    "SELECT rank FROM events QUALIFY row_number() OVER (ORDER BY ({})) < 3",
    "SELECT count(*) FROM events GROUP BY GROUPING SETS ((({})), ())",
    "SELECT rank FROM events LIMIT ({})",
    "SELECT ARRAY({})",
    "SELECT * REPLACE (({}) AS rank) FROM events",
    "SELECT string_agg(node_id, ({})) FROM events",
    "SELECT * FROM events a JOIN events b ON ({})",
    "SELECT CASE WHEN EXISTS ({}) THEN 1 ELSE 2 END",
    "FROM unnest(ARRAY({}))",
    "SELECT * FROM events SEMI JOIN ({}) AS q ON true",
    "UNPIVOT ({}) ON COLUMNS(*)",
    "PIVOT ({}) ON x IN ('a') USING count(*)",
    "SELECT COLUMNS(lambda c: EXISTS ({})) FROM events",
    "SELECT {{'a': ({})}}.a",
    "SELECT rank >= ALL ({}) FROM events",
    "({}) ORDER BY 1 LIMIT 3",
    "EXPLAIN {}",
    "FROM ({})",
)
_CLAUSE = re.compile(
    r"\b(FROM|WHERE|GROUP BY|HAVING|QUALIFY|ORDER BY|LIMIT|UNION|WINDOW|JOIN|WITH|SELECT)\b", re.IGNORECASE
)


def wrapped(rng: Random, sql: str, other: str) -> str:
    """The statement in the place where another may hold one."""
    return rng.choice((*WRAPPINGS, *_MORE)).format(_bare(sql))


def inserted(rng: Random, sql: str, other: str) -> str:
    """The other statement in brackets, at the place of a word of this one."""
    parts = tokens(sql)
    places = [place for place, token in enumerate(parts) if is_word(token)]
    if places:
        parts[rng.choice(places)] = f"({_bare(other)})"
    return "".join(parts)


def defined(rng: Random, sql: str, other: str) -> str:
    """The other statement as a definition, under a name that may be that of a private table."""
    names = (*PRIVATE, "vault", "events", "nodes", '"\u212a"', "K", "x", '"Events"', "show")
    name, columns = rng.choice(names), rng.choice(("", "(x)", "(owner, token)"))
    definition = f"WITH {name}{columns} AS ({_bare(other)}) "
    places = [0] + [found.start() for found in re.finditer(r"(?<=\()\s*(?:SELECT|FROM)\b", sql, re.IGNORECASE)]
    place = rng.choice(places)
    return sql[:place] + definition + sql[place:]


def combined(rng: Random, sql: str, other: str) -> str:
    """Both in a set operation or one behind the other."""
    how = rng.choice(("{} UNION ALL {}", "({}) EXCEPT ({})", "{}; {}", "({}) UNION BY NAME ({})", "{}\n;--\n{}"))
    return how.format(_bare(sql), _bare(other))


def crossed(rng: Random, sql: str, other: str) -> str:
    """The first clauses of one and the last of the other."""
    ends, starts = ([0, *(found.start() for found in _CLAUSE.finditer(text))] for text in (sql, other))
    return sql[: rng.choice(ends) or len(sql)] + " " + other[rng.choice(starts) :]


def shuffled(rng: Random, sql: str, other: str) -> str:
    """A run of tokens of one in the place of a run of the other."""
    parts, others = tokens(sql), tokens(other)
    start, first = rng.randint(0, len(parts)), rng.randint(0, len(others))
    parts[start : start + rng.randint(0, 6)] = others[first : first + rng.randint(1, 8)]
    return "".join(parts)


def _bare(sql: str) -> str:
    return sql.rstrip().rstrip(";")
