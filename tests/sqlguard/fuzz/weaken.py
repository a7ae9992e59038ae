"""The guard with some of its layers left out, in a process that is spent on it.

The guard itself has no switches, and gets none: here parts of `checked` are replaced, for good. So what is tried is
the guard as it is, however it changes, and no copy of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from ingero_mcp.errors import GuardError, Reason
from ingero_mcp.sqlguard import checked
from ingero_mcp.sqlguard.duckdb_opinion import Opinion
from tests.sqlguard.fuzz.layers import Layer, Layers

_ONE = "not_one_statement"


def leave_out(on: Layers) -> None:
    """Take every layer of the guard that is not in `on` out of this process."""
    if Layer.TEXT not in on:
        _replace("check_text", lambda _: lambda sql: [])
        _replace("check_characters", lambda _: lambda sql: [])
    if Layer.GROWTH not in on:
        _replace("check_growth", lambda _: lambda tree: [])
    elif Layer.DUCKDB not in on:
        _replace("check_growth", _of_what_it_can_read)
    if not {Layer.DUCKDB, Layer.ONE_STATEMENT} <= on:
        _replace("check_with_duckdb", lambda opinion: _filtered_opinion(opinion, on))
    if not {Layer.SQLGLOT, Layer.ONE_STATEMENT, Layer.RENDERED} <= on:
        _replace("check_with_sqlglot", lambda opinion: _filtered(opinion, on))
    if Layer.RENDERED not in on:
        _replace("rewrite", lambda _: lambda tree, relations: "SELECT 1")


def what_runs(sql: str, on: Layers) -> str | None:
    """The text that reaches the engine for `sql`; None where it is refused."""
    try:
        query = checked.check(sql)
    except GuardError:
        return None
    except (duckdb.Error, LookupError, TypeError, ValueError):
        if {Layer.DUCKDB, Layer.SQLGLOT} <= on:
            raise
        return None  # without the opinions, statements arrive that cannot be rendered: they do not get through
    return query.sql if Layer.RENDERED in on else query.text


def _replace(name: str, made: Callable[[Any], Callable[..., Any]]) -> None:
    setattr(checked, name, made(getattr(checked, name)))


def _stays(reason: Reason, layer: Layer, on: Layers) -> bool:
    return (Layer.ONE_STATEMENT if reason.code == _ONE else layer) in on


def _filtered_opinion(opinion: Callable[..., Opinion], on: Layers) -> Callable[..., Opinion]:
    def weaker(*given: Any, **named: Any) -> Opinion:
        found = opinion(*given, **named)
        return found._replace(reasons=[reason for reason in found.reasons if _stays(reason, Layer.DUCKDB, on)])

    return weaker


def _filtered(opinion: Callable[..., list[Reason]], on: Layers) -> Callable[..., list[Reason]]:
    def weaker(*given: Any, **named: Any) -> list[Reason]:
        found = opinion(*given, **named)
        if Layer.RENDERED not in on:
            # What sqlglot cannot read is left to the rendered text. Where there is none it is refused; if only for
            # being so many statements as nobody knows.
            found = [Reason(_ONE, "unreadable") if reason.code == "syntax" else reason for reason in found]
            if Layer.SQLGLOT in on:
                return found
        return [reason for reason in found if _stays(reason, Layer.SQLGLOT, on)]

    return weaker


def _of_what_it_can_read(check_growth: Callable[..., list[Reason]]) -> Callable[..., list[Reason]]:
    # It is made for trees that DuckDB's opinion let pass.
    def weaker(tree: Any) -> list[Reason]:
        try:
            return check_growth(tree)
        except (LookupError, TypeError, ValueError):
            return []

    return weaker
