"""Why SQL was refused, in words that teach: what is allowed in its stead, with a corrected example if there is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from ingero_mcp.errors import Reason
from ingero_mcp.sqlguard import allowed, instead
from ingero_mcp.sqlguard.instead import Instead
from ingero_mcp.sqlguard.refused import refused
from ingero_mcp.views import relations

ASK_SCHEMA = "the resource fleet://schema has the columns of every relation"
ASK_AGAIN = f"fleet.cluster.run_analysis with the corrected SQL; {ASK_SCHEMA}"
ASK_RELATIONS = f"the relations are {', '.join(relations())}; {ASK_SCHEMA}"
SELECT_ONLY = "One SELECT (or FROM, VALUES, TABLE, WITH ... SELECT) is allowed."
EXAMPLE = "SELECT node_id, count(*) FROM events GROUP BY node_id"
_SHOW_AT_MOST = 20


def nearest(name: str, names: frozenset[str]) -> str:
    """The closest of `names` as a question, or nothing."""
    found = get_close_matches(allowed.folded(name), names, n=1, cutoff=0.7)
    return f"Did you mean {found[0]}?" if found else ""


def unique(found: Iterable[Reason]) -> list[Reason]:
    """Each reason once, with its place if that is known, and not more of them than anybody reads."""
    kept: dict[tuple[str, str], Reason] = {}
    for reason in found:
        key = reason.code, reason.message
        if key not in kept or kept[key].offset is None:
            kept[key] = reason
    return list(kept.values())[:_SHOW_AT_MOST]


def complete(found: Iterable[Reason]) -> tuple[Reason, ...]:
    """The reasons, each with somebody to ask next."""
    return tuple(reason if reason.ask else replace(reason, ask=ASK_AGAIN) for reason in found)


def _join(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _told(hint: Instead | None, *before: str) -> str:
    return _join(*before, hint.hint if hint else "")


def _example(hint: Instead | None) -> str:
    return hint.example if hint else ""


def empty() -> Reason:
    """No text at all."""
    return Reason("empty", "There is no SQL.", SELECT_ONLY, example=EXAMPLE, ask=ASK_SCHEMA)


def table(name: str, offset: int | None = None) -> Reason:
    """A table that is neither an allowed relation nor a common table expression in scope."""
    habit = instead.TABLES.get(allowed.folded(name))
    near = "" if habit else nearest(name, allowed.RELATIONS)
    files = "Files cannot be read here." if set(name) & set("/.*") else ""
    hint = _told(habit, files, near) or "Only the relations of this server can be read, and what WITH defines before."
    return Reason("table_not_allowed", f"Table {name} is not allowed.", hint, offset, _example(habit), ASK_RELATIONS)


def qualified_table(name: str, offset: int | None = None) -> Reason:
    """A table with a schema or catalog before it, or a file name that reads like one."""
    last = name.rsplit(".", 1)[-1]
    habit = instead.TABLES.get(allowed.folded(last))
    if allowed.folded(last) in allowed.RELATIONS:
        habit = Instead(f"Write {last} without a schema.", f"SELECT * FROM {last} LIMIT 10")
    hint = _told(habit) or "Relations stand without a schema, and files cannot be read."
    return Reason("qualified_table", f"Table {name} is qualified.", hint, offset, _example(habit), ASK_RELATIONS)


def shadowed(name: str, offset: int | None = None) -> Reason:
    """A common table expression with the name of an allowed relation."""
    relation = allowed.folded(name)
    example = f"WITH my_{relation} AS (SELECT * FROM {relation} WHERE rank = 0) SELECT count(*) FROM my_{relation}"
    message = f"WITH {name} hides the relation {relation}."
    return Reason("shadowed_relation", message, "Give it a name of its own.", offset, example)


def recursive(offset: int | None = None) -> Reason:
    """WITH RECURSIVE."""
    hint = "Use range(n) in FROM for a series, or a self-join for a parent."
    example = "SELECT a.span_id, b.metric_name AS parent FROM events a JOIN events b ON b.span_id = a.parent_span_id"
    return Reason("recursive_cte", "WITH RECURSIVE is not allowed.", hint, offset, example)


def function(name: str, offset: int | None = None) -> Reason:
    """A function that is not allowed where a value stands."""
    if allowed.folded(name) in allowed.SESSION_NAMES:
        return session_value(name, offset)
    return _function("function_not_allowed", f"Function {name} is not allowed", name, offset, in_from=False)


def table_function(name: str, offset: int | None = None) -> Reason:
    """A function that is not allowed in FROM."""
    reason = _function(
        "table_function_not_allowed", f"Function {name} is not allowed in FROM", name, offset, in_from=True
    )
    return replace(reason, hint=_join(reason.hint, f"In FROM: {', '.join(sorted(allowed.TABLE_FUNCTIONS))}."))


def _function(code: str, message: str, name: str, offset: int | None, *, in_from: bool) -> Reason:
    habit = instead.FUNCTIONS.get(allowed.folded(name))
    judged = refused(name, in_from=in_from)
    message = f"{message}: it {judged.why}." if judged else f"{message}."
    near = "" if habit or judged else nearest(name, allowed.TABLE_FUNCTIONS if in_from else allowed.SCALAR_FUNCTIONS)
    hint = _told(habit) or (judged.instead if judged else near) or "Use DuckDB's ordinary functions and aggregates."
    return Reason(code, message, hint, offset, _example(habit), ASK_SCHEMA)


def qualified_function(name: str, offset: int | None = None) -> Reason:
    """A function with something before its name: a schema, or an alias in method style."""
    first, last = name.rsplit(".", 1)
    hint = f"Write {last}({first}) for a method call, or {last}(...) without a schema."
    return Reason("qualified_function", f"Function {name} is qualified.", hint, offset, "upper(e.node_id)")


def dynamic_pivot(offset: int | None = None) -> Reason:
    """PIVOT without its values, which DuckDB turns into several statements."""
    hint = "SELECT DISTINCT metric_name FROM events lists them."
    example = "PIVOT events ON metric_name IN ('ncclAllReduce', 'cudaMalloc') USING count(*) GROUP BY node_id"
    return Reason("dynamic_pivot", "PIVOT needs its values listed behind IN.", hint, offset, example)


def not_one(count: int) -> Reason:
    """No statement, or several."""
    hint = "Send one statement; a second one in a call of its own."
    ask = f"fleet.cluster.run_analysis, once for each statement; {ASK_SCHEMA}"
    return Reason("not_one_statement", f"There are {count} statements.", hint, example=EXAMPLE, ask=ask)


def not_a_select(word: str = "") -> Reason:
    """A statement that is no query, by its first word if that is known."""
    habit = instead.STATEMENTS.get(word)
    message = f"{word} is not allowed." if word else "This is not one SELECT."
    hint = _told(habit, "This only reads.", "" if habit else SELECT_ONLY)
    return Reason("not_a_select", message, hint, 0, _example(habit) or EXAMPLE, ASK_SCHEMA)


def too_deep() -> Reason:
    """Nested beyond what the parsers or the checks can follow."""
    hint = (
        "Name the inner parts in a WITH clause; use concat in place of very many ||, and IN in place of very many OR."
    )
    return Reason("too_deep", "The text is nested too deeply.", hint)


def session_value(name: str, offset: int | None = None) -> Reason:
    """A function without brackets that tells of the session, or a column with its name."""
    hint = "Facts about the session are not available. A column of that name: give it another with AS."
    return Reason("session_value", f"{name} is not allowed.", hint, offset, ask=ASK_SCHEMA)


def unknown_type(name: str, offset: int | None = None) -> Reason:
    """A type that is not on the list."""
    known = instead.TYPES.get(allowed.folded(name), "")
    near = f"Use {known}." if known else nearest(name, allowed.TYPES)
    hint = _join(near, "Examples: BIGINT, DOUBLE, VARCHAR, TIMESTAMP, DECIMAL(18, 3), INTEGER[].")
    return Reason(
        "type_not_allowed", f"Type {name} is not allowed.", hint, offset, f"CAST(rank AS {known or 'BIGINT'})"
    )


def parameter(offset: int | None = None) -> Reason:
    """`?`, `$1` or `$name`."""
    return Reason("parameter", "Parameters are not allowed.", "Write the value itself.", offset, "rank = 5")


def strained(name: str, offset: int | None = None) -> Reason:
    """A function that fails badly on large values, on a value that could be one."""
    hint = "Use it on a column or a short literal, not on text or lists put together from many rows."
    return Reason("argument_too_large", f"An argument of {name} could be too large.", hint, offset)


def construct(name: str, hint: str = "", offset: int | None = None, example: str = "") -> Reason:
    """A part of SQL that is not on the list."""
    example = example or ("" if hint else EXAMPLE)
    return Reason("construct_not_allowed", f"{name} is not allowed.", hint or SELECT_ONLY, offset, example, ASK_SCHEMA)


def unlisted_field(name: str, offset: int | None = None) -> Reason:
    """A field of a node in DuckDB's tree that is not on the list."""
    if name == "named_param_map":
        return parameter()
    words = {
        "at_clause": "AT (VERSION or TIMESTAMP)",
        "pivot_enum": "PIVOT ... IN (type)",
        "ranking_expression": "NEAREST JOIN",
    }
    return construct(words.get(name, name.replace("_", " ")), offset=offset)


def unlisted_node(kind: str, offset: int | None = None) -> Reason:
    """A kind of node in DuckDB's tree that is not on the list."""
    if kind == "PARAMETER":
        return parameter(offset)
    if kind == "RECURSIVE_CTE_NODE":
        return recursive(offset)
    if kind == "SHOW_REF":
        habit = instead.STATEMENTS["SHOW"]
        return construct("SHOW, DESCRIBE or SUMMARIZE", habit.hint, offset, habit.example)
    if kind.endswith("_QUERY_NODE"):
        return construct(f"{kind.removesuffix('_QUERY_NODE')} inside WITH", "This only reads. " + SELECT_ONLY, offset)
    return construct(kind.replace("_", " "), offset=offset)
