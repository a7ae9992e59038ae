"""The layers between a text and the engine, each of which can be left out to see whether it is needed."""

from __future__ import annotations

from enum import StrEnum


class Layer(StrEnum):
    """One layer; docs/sqlguard.md says what each is for."""

    TEXT = "text"
    SQLGLOT = "sqlglot"
    DUCKDB = "duckdb"
    GROWTH = "growth"
    RENDERED = "rendered"
    """What runs is the text rendered from the tree, after both opinions were asked again; without it, the raw text."""
    ONE_STATEMENT = "one-statement"
    READ_ONLY = "read-only"
    LOCKED = "locked"


Layers = frozenset[Layer]

ALL: Layers = frozenset(Layer)
"""The guard and the store as they are."""


def without(*left_out: Layer) -> Layers:
    """Every layer but these."""
    return ALL - set(left_out)
