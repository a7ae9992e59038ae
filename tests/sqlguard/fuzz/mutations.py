"""From a seed and a number to a statement: some statement of the golden files, changed a few times."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from random import Random

from tests.sqlguard import statements
from tests.sqlguard.fuzz import growing, layout, spelling, splicing, targets
from tests.sqlguard.fuzz.bait import FILE, OUT

Mutation = Callable[[Random, str], str]
Splice = Callable[[Random, str, str], str]

MUTATIONS: tuple[Mutation, ...] = (
    *(
        layout.gaps,
        layout.one_gap,
        layout.one_gap,
        layout.extra_gap,
        layout.case,
        layout.look_alike,
        layout.quoted,
        layout.hidden,
    ),
    *(spelling.alias, spelling.without_token, spelling.moved_token, spelling.renamed),
    *(targets.table, targets.added_table, targets.value, targets.effect),
)
SPLICES: tuple[Splice, ...] = (
    *(splicing.wrapped, splicing.inserted, splicing.defined, splicing.combined, splicing.crossed, splicing.shuffled),
)
_TURNS = (0, 1, 1, 1, 2, 2, 3, 5)
_LONGEST = 30_000
_GROWN = 0.04

# Statements run where a layer is left out, too: none may reach for more of the machine than the bait.
_NETWORK = re.compile(r"\b(INSTALL|LOAD|httpfs|https?|s3)\b", re.IGNORECASE)
_WRITTEN = re.compile(r"(\bTO\s+|DATABASE\s+)'[^']*'", re.IGNORECASE)
_READ = re.compile(r"(['\"])(/etc/[\w./-]*|/home/\*|/tmp/\w+\.csv|x\.parquet|passwords\.csv)\1|\bpasswords\.csv\b")


@cache
def seeds() -> tuple[str, ...]:
    """The golden statements, with the bait's file and folder in place of theirs; more often the allowed ones."""
    texts = [*statements.allowed() * 2, *(sql for sql, _ in statements.denied())]
    return tuple(_moved(sql) for sql in texts if not _NETWORK.search(sql))


def _moved(sql: str) -> str:
    sql = _WRITTEN.sub(rf"\1'{OUT}/seed'", sql)
    return _READ.sub(lambda found: f"{found[1] or ''}{FILE}{found[1] or ''}", sql)


def statement(seed: int, number: int) -> str:
    """The statement of that number; the same one each time."""
    rng = Random(f"{seed}:{number}")
    sql = growing.grown(rng) if rng.random() < _GROWN else rng.choice(seeds())
    for _ in range(rng.choice(_TURNS)):
        if rng.random() < 0.35:
            sql = rng.choice(SPLICES)(rng, sql, rng.choice(seeds()))
        else:
            sql = rng.choice(MUTATIONS)(rng, sql)
        if len(sql) > _LONGEST:
            break
    return sql
