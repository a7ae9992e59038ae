"""The check as a whole, and the type that only it can make."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NoReturn, final

import duckdb

from ingero_mcp.errors import GuardError, Reason
from ingero_mcp.sqlguard import engine, reasons
from ingero_mcp.sqlguard.duckdb_opinion import check_with_duckdb
from ingero_mcp.sqlguard.growth import check_growth
from ingero_mcp.sqlguard.methods import methods_to_calls
from ingero_mcp.sqlguard.rewrite import rewrite
from ingero_mcp.sqlguard.sqlglot_opinion import check_with_sqlglot
from ingero_mcp.sqlguard.text import check_characters, check_text, unfenced


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
    sql = unfenced(sql)
    try:
        verdict = _verdict(sql)
    except RecursionError:  # not kept as a verdict: it hangs on how deep the caller's own stack is
        raise GuardError(reasons.complete([reasons.too_deep()]), sql) from None
    if isinstance(verdict, tuple):
        raise GuardError(reasons.complete(verdict), sql)
    return verdict


@functools.lru_cache(maxsize=512)
def _verdict(sql: str) -> CheckedQuery | tuple[Reason, ...]:
    if found := check_text(sql):
        return tuple(found)
    tree = engine.parse(sql)
    methods_to_calls(tree)
    opinion = check_with_duckdb(tree, sql, rendered=False)
    # What sqlglot cannot read and DuckDB can (a comment between GROUP and BY, backticks) is judged by both in the
    # rendered text, which is all that runs; there it has to be readable to both.
    of_sqlglot = [reason for reason in check_with_sqlglot(sql, rendered=False) if reason.code != "syntax"]
    refused = _together(tree, [_placed(reason, sql) for reason in opinion.reasons], of_sqlglot)
    if refused := refused or tuple(_placed(reason, sql) for reason in check_growth(tree)):
        return refused
    try:
        rendered = rewrite(tree, opinion.relations)
    except duckdb.SerializationException:
        return (reasons.too_deep(),)  # more than 256 levels of JSON
    return _check_rendered(rendered) or _made(sql.strip(), rendered)


def _check_rendered(sql: str) -> tuple[Reason, ...]:
    # Escapes (E'\u200b') have become the characters they stand for, hence the first.
    if found := check_characters(sql):
        return tuple(found)
    tree = engine.parse(sql)
    return _together(tree, check_with_duckdb(tree, rendered=True).reasons, check_with_sqlglot(sql, rendered=True))


def _together(tree: engine.Tree, of_duckdb: list[Reason], of_sqlglot: list[Reason]) -> tuple[Reason, ...]:
    if tree.get("error_type") == "not implemented" and of_sqlglot:
        return tuple(of_sqlglot)  # DuckDB only says that it is no SELECT, sqlglot what it is
    # Most faults are seen by both, and DuckDB knows the engine's name for them. Where it does not say the place
    # (functions in FROM, WITH), sqlglot does.
    codes = {reason.code for reason in of_duckdb}
    places = {(reason.code, reason.message): reason.offset for reason in of_sqlglot}
    return (
        *(
            reason if reason.offset is not None else replace(reason, offset=places.get((reason.code, reason.message)))
            for reason in of_duckdb
        ),
        *(reason for reason in of_sqlglot if reason.code not in codes),
    )


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
