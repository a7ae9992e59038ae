"""Why SQL was refused, in words that teach: what is allowed in its stead, with a corrected example if there is one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ingero_mcp.errors import Reason
from ingero_mcp.sqlguard import allowed

WHERE_TO_LOOK = "The resource fleet://schema lists relations and columns."
_SHOW_AT_MOST = 20
SELECT_ONLY = (
    "One SELECT (or FROM, VALUES, TABLE, WITH ... SELECT) is allowed, for example "
    "SELECT node_id, count(*) FROM events GROUP BY node_id."
)

# What to write in place of a function that people are likely to try; the key is the start of its name.
_INSTEAD: tuple[tuple[str, str], ...] = (
    ("read_", "Files cannot be read here; ask for the data in events."),
    ("parquet_", "Files cannot be read here; ask for the data in events."),
    ("sniff_", "Files cannot be read here; ask for the data in events."),
    ("glob", "Files cannot be read here. To match text write: node_id GLOB 'gpu-*'."),
    ("query", "Write the query itself in place of its text."),
    ("duckdb_", WHERE_TO_LOOK),
    ("pragma_", WHERE_TO_LOOK),
    ("pg_", WHERE_TO_LOOK),
    ("json_structure", "Use json_keys(attrs_json) or json_type(attrs_json, '$.a')."),
    ("json_serialize", "Write the query itself."),
    ("json_execute", "Write the query itself."),
    ("range", "Use it in FROM: SELECT i FROM range(10) AS r(i)."),
    ("generate_series", "Use it in FROM: SELECT i FROM generate_series(1, 10) AS r(i)."),
    ("repeat", "Functions that make text of any length are refused; use a literal."),
    ("lpad", "To pad, write right('000' || rank, 3)."),
    ("rpad", "To pad, write left(node_id || '        ', 8)."),
    ("printf", "Use || or concat: node_id || ':' || rank."),
    ("format", "Use || or concat: node_id || ':' || rank."),
    ("list_resize", "Use list_slice or list_concat."),
    ("array_resize", "Use list_slice or list_concat."),
    ("histogram", "In FROM it opens tables and files; use SELECT histogram(rank) FROM events."),
    ("summary", "Use min, max, approx_quantile and count."),
    ("factorial", "Use gamma(n + 1)."),
    ("approx_top_k", "Use GROUP BY ... ORDER BY count(*) DESC LIMIT k."),
    ("reservoir_quantile", "Use approx_quantile(x, 0.99)."),
    ("from_json", "Use json_extract_string(attrs_json, '$.a') or json_each(attrs_json) in FROM."),
    ("json_transform", "Use json_extract_string(attrs_json, '$.a') or json_each(attrs_json) in FROM."),
    ("json_pretty", "Return the value itself; the client can lay it out."),
    ("nvl", "Use coalesce."),
    ("isnull", "Use x IS NULL or coalesce."),
    ("to_char", "Use strftime(make_timestamp_ns(timestamp_ns), '%H:%M:%S')."),
    ("date_format", "Use strftime(make_timestamp_ns(timestamp_ns), '%H:%M:%S')."),
    ("from_unixtime", "Use make_timestamp_ns(timestamp_ns)."),
    ("percentile", "Use quantile_cont(duration_ns, 0.99)."),
    ("collect_list", "Use list."),
    ("current_", "Facts about the session are not available; now() and current_timestamp are."),
)


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


def _join(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def table(name: str, offset: int | None = None) -> Reason:
    """A table that is neither an allowed relation nor a common table expression in scope."""
    hint = _join(nearest(name, allowed.RELATIONS), f"Allowed: {', '.join(sorted(allowed.RELATIONS))}.", WHERE_TO_LOOK)
    return Reason("table_not_allowed", f"Table {name} is not allowed.", hint, offset)


def qualified_table(name: str, offset: int | None = None) -> Reason:
    """A table with a schema or catalog before it, or a file name that reads like one."""
    last = name.rsplit(".", 1)[-1]
    example = f"Write {last} without a schema." if allowed.folded(last) in allowed.RELATIONS else ""
    hint = _join(example, f"Allowed: {', '.join(sorted(allowed.RELATIONS))}, without a schema.", WHERE_TO_LOOK)
    return Reason("qualified_table", f"Table {name} is qualified.", hint, offset)


def shadowed(name: str) -> Reason:
    """A common table expression with the name of an allowed relation."""
    relation = allowed.folded(name)
    hint = f"Give it a name of its own: WITH my_{relation} AS (SELECT ... FROM {relation}) SELECT ... ."
    return Reason("shadowed_relation", f"WITH {name} hides the relation {relation}.", hint)


def recursive() -> Reason:
    """WITH RECURSIVE."""
    hint = "Use range(n) in FROM for a series, or a self-join for a parent: events a JOIN events b ON ... ."
    return Reason("recursive_cte", "WITH RECURSIVE is not allowed.", hint)


def function(name: str, offset: int | None = None) -> Reason:
    """A function that is not allowed where a value stands."""
    if allowed.folded(name) in allowed.SESSION_NAMES:
        return session_value(name, offset)
    instead = next((text for start, text in _INSTEAD if allowed.folded(name).startswith(start)), "")
    hint = instead or nearest(name, allowed.SCALAR_FUNCTIONS) or "Use DuckDB's ordinary functions and aggregates."
    return Reason("function_not_allowed", f"Function {name} is not allowed.", hint, offset)


def table_function(name: str, offset: int | None = None) -> Reason:
    """A function that is not allowed in FROM."""
    instead = next((text for start, text in _INSTEAD if allowed.folded(name).startswith(start)), "")
    hint = _join(instead, f"In FROM: {', '.join(sorted(allowed.TABLE_FUNCTIONS))}.")
    return Reason("table_function_not_allowed", f"Function {name} is not allowed in FROM.", hint, offset)


def qualified_function(name: str, offset: int | None = None) -> Reason:
    """A function with something before its name: a schema, or a column in method style."""
    first, last = name.rsplit(".", 1)
    hint = f"Write {last}({first}, ...) for a method call, or {last}(...) without a schema."
    return Reason("qualified_function", f"Function {name} is qualified.", hint, offset)


def dynamic_pivot() -> Reason:
    """PIVOT without its values, which DuckDB turns into several statements."""
    hint = (
        "Example: PIVOT events ON metric_name IN ('ncclAllReduce', 'cudaMalloc') USING count(*) GROUP BY node_id. "
        "SELECT DISTINCT metric_name FROM events lists them."
    )
    return Reason("dynamic_pivot", "PIVOT needs its values listed behind IN.", hint)


def not_one(count: int) -> Reason:
    """No statement, or several."""
    hint = "Send one statement; call fleet.cluster.run_analysis again for the next."
    return Reason("not_one_statement", f"There are {count} statements.", hint)


def too_deep() -> Reason:
    """Nested beyond what the parsers or the checks can follow."""
    return Reason("too_deep", "The text is nested too deeply.", "Name the inner parts in a WITH clause.")


def session_value(name: str, offset: int | None = None) -> Reason:
    """A function without brackets that tells of the session, or a column with its name."""
    hint = "Facts about the session are not available. A column of that name: give it another with AS."
    return Reason("session_value", f"{name} is not allowed.", hint, offset)


def parameter(offset: int | None = None) -> Reason:
    """`?`, `$1` or `$name`."""
    return Reason("parameter", "Parameters are not allowed.", "Write the value itself, for example rank = 5.", offset)


def strained(name: str) -> Reason:
    """A function that fails badly on large values, on a value that could be one."""
    hint = "Use it on a column or a short literal, not on text or lists put together from many rows."
    return Reason("argument_too_large", f"An argument of {name} could be too large.", hint)


def construct(name: str, hint: str = "", offset: int | None = None) -> Reason:
    """A part of SQL that is not on the list."""
    return Reason("construct_not_allowed", f"{name} is not allowed.", hint or SELECT_ONLY, offset)


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
        return recursive()
    if kind == "SHOW_REF":
        return construct("SHOW, DESCRIBE or SUMMARIZE", WHERE_TO_LOOK, offset)
    if kind.endswith("_QUERY_NODE"):
        return construct(f"{kind.removesuffix('_QUERY_NODE')} inside WITH", "This only reads. " + SELECT_ONLY, offset)
    return construct(kind.replace("_", " "), offset=offset)
