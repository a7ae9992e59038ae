"""The check as a whole, and the type that only it can make."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NoReturn, final

from ingero_mcp.errors import GuardError, Reason
from ingero_mcp.sqlguard import engine, reasons
from ingero_mcp.sqlguard.duckdb_opinion import check_with_duckdb
from ingero_mcp.sqlguard.growth import check_growth
from ingero_mcp.sqlguard.rewrite import rewrite
from ingero_mcp.sqlguard.sqlglot_opinion import check_with_sqlglot
from ingero_mcp.sqlguard.text import check_characters, check_text


@final
@dataclass(frozen=True, slots=True, init=False)
class CheckedQuery:
    """SQL that passed the guard; made by `check` and by nothing else.

    `text` is what was asked, `sql` is what the engine runs: the same query, rendered from DuckDB's own tree.
    """

    text: str
    sql: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("only ingero_mcp.sqlguard.check makes a CheckedQuery")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("a CheckedQuery has no other kinds")


def check(sql: str) -> CheckedQuery:
    """The query in `sql` if everything in it is allowed, else GuardError with every reason that was found.

    Allowed is one SELECT over the relations of `ingero_mcp.views.relations()` with the functions listed in
    `allowed.py`. Calling it again for the same text costs nothing: verdicts are kept.
    """
    verdict = _verdict(sql)
    if isinstance(verdict, tuple):
        raise GuardError(verdict)
    return verdict


@functools.lru_cache(maxsize=512)
def _verdict(sql: str) -> CheckedQuery | tuple[Reason, ...]:
    if found := check_text(sql):
        return tuple(found)
    try:
        return _checked(sql)
    except RecursionError:
        return (reasons.too_deep(),)


def _checked(sql: str) -> CheckedQuery | tuple[Reason, ...]:
    tree = engine.parse(sql)
    if found := _both_opinions(sql, tree) or check_growth(tree):
        return tuple(found)
    rendered = rewrite(tree)
    # Once more for the text that will run: both opinions of it, and the characters that escapes (E'\u200b') stand for.
    if found := check_characters(rendered) or _both_opinions(rendered, engine.parse(rendered), rendered=True):
        return tuple(found)
    return _made(sql.strip(), rendered)


def _both_opinions(sql: str, tree: engine.Tree, *, rendered: bool = False) -> list[Reason]:
    of_duckdb = [_placed(reason, sql) for reason in check_with_duckdb(tree, rendered=rendered)]
    of_sqlglot = check_with_sqlglot(sql, rendered=rendered)
    if tree.get("error_type") == "not implemented" and of_sqlglot:
        return of_sqlglot  # DuckDB only says that it is no SELECT, sqlglot what it is
    # Most faults are seen by both, and DuckDB knows the engine's name for them and the place.
    codes = {reason.code for reason in of_duckdb}
    return of_duckdb + [reason for reason in of_sqlglot if reason.code not in codes]


def _placed(reason: Reason, sql: str) -> Reason:
    # DuckDB counts bytes.
    if reason.offset is None or sql.isascii():
        return reason
    return replace(reason, offset=len(sql.encode()[: reason.offset].decode(errors="ignore")))


def _made(text: str, sql: str) -> CheckedQuery:
    query = object.__new__(CheckedQuery)
    object.__setattr__(query, "text", text)
    object.__setattr__(query, "sql", sql)
    return query
