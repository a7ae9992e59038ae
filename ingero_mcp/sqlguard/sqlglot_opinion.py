"""The first opinion: sqlglot's tree of the text holds only listed nodes, functions and tables.

sqlglot reads SQL of many dialects and accepts more than DuckDB does, so its tree is held to a list of what may
be in it; a search for what is forbidden would miss the unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import sqlglot
from sqlglot import exp

from ingero_mcp.errors import Reason
from ingero_mcp.sqlguard import allowed, reasons
from ingero_mcp.sqlguard.syntax import syntax_error

# It warns, with the text, about each statement it does not understand; those are refused anyway, and the text is
# an agent's. Nothing else in this program uses sqlglot.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL + 1)

_ROOTS = (exp.Select, exp.SetOperation, exp.Values, exp.Subquery, exp.Pivot)
_TABLE_ARGS = frozenset({"this", "alias", "catalog", "db", "joins", "laterals", "ordinality", "pivots", "sample"})


def check_with_sqlglot(sql: str, *, rendered: bool) -> list[Reason]:
    """Every reason that sqlglot's tree gives to refuse `sql`.

    `rendered` says that it is our own text, in which relations stand as main.<name>.
    """
    try:
        statements = [tree for tree in sqlglot.parse(sql, dialect="duckdb") if not _is_empty(tree)]
    except RecursionError:
        raise
    except Exception as error:  # on `SELECT -> 1` it fails with a TypeError of its own: not understood, so refused
        return [_not_understood(error, sql)]
    if len(statements) != 1:
        return [reasons.not_one(len(statements))]
    root = statements[0]
    assert root is not None
    if not isinstance(root, _ROOTS):
        return [_not_a_query(root)]
    found = reasons.unique(reason for node in root.walk() for reason in _check(node, rendered))
    return [replace(reason, offset=None) for reason in found] if rendered else found


def _is_empty(tree: exp.Expr | None) -> bool:
    return tree is None or isinstance(tree, exp.Semicolon)


def _not_understood(error: Exception, sql: str) -> Reason:
    details = getattr(error, "errors", None) or [{}]
    text = str(details[0].get("description") or "it cannot be read")
    # Its words for what is missing name classes of its own.
    reason = syntax_error("it cannot be read" if "<class" in text else text.rstrip("."), sql, None)
    return replace(reason, offset=None)


def _not_a_query(root: exp.Expr) -> Reason:
    return reasons.not_a_select((root.name if isinstance(root, exp.Command) else root.key).upper())


def _offset(node: exp.Expr) -> int | None:
    """Where the first word is that sqlglot kept the place of."""
    places = (part.meta.get("start") for part in node.walk() if part._meta)
    return next((place for place in places if isinstance(place, int)), None)


def _check(node: exp.Expr, rendered: bool) -> Iterator[Reason]:
    if isinstance(node, exp.Anonymous):
        yield from _check_anonymous(node)
    elif type(node).__name__ not in (
        allowed.SQLGLOT_FUNCTIONS if isinstance(node, exp.Func) else allowed.SQLGLOT_NODES
    ):
        yield _unlisted(node)
    elif isinstance(node, exp.GenerateSeries) and not isinstance(node.parent, exp.Table | exp.Lateral):
        yield reasons.function("range" if node.args.get("is_end_exclusive") else "generate_series", _offset(node))
    if isinstance(node, exp.DataType) and (name := _named_type(node)) and allowed.folded(name) not in allowed.TYPES:
        yield reasons.unknown_type(name)
    if _is_dynamic_pivot(node):
        yield reasons.dynamic_pivot(_offset(node))
    elif isinstance(node, exp.Table):
        yield from _check_table(node, rendered)
    elif isinstance(node, exp.With):
        if node.args.get("recursive"):
            yield reasons.recursive(_offset(node))
        hiding = (cte for cte in node.expressions if allowed.folded(cte.alias) == allowed.NEVER_SHADOWED)
        yield from (reasons.shadowed(cte.alias, _offset(cte.args["alias"])) for cte in hiding)


def _named_type(node: exp.DataType) -> str:
    """The name of a type that sqlglot does not know, and takes for one that somebody made; "" for its own."""
    return str(node.args.get("kind") or "") if node.this == exp.DType.USERDEFINED else ""


def _is_dynamic_pivot(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Pivot) or node.args.get("unpivot") or node.args.get("fields"):
        return False
    return not all(isinstance(on, exp.In) and on.expressions for on in node.expressions)


def _unlisted(node: exp.Expr) -> Reason:
    if isinstance(node, exp.Func):
        name = node.sql_name().lower()
        in_from = isinstance(node.parent, exp.Table | exp.Lateral)
        return reasons.table_function(name, _offset(node)) if in_from else reasons.function(name, _offset(node))
    if isinstance(node, exp.Placeholder | exp.Parameter):
        return reasons.parameter(_offset(node))
    return reasons.construct(node.key.upper(), offset=_offset(node))


def _check_anonymous(node: exp.Anonymous) -> Iterator[Reason]:
    name = node.name
    if isinstance(node.parent, exp.Table | exp.Lateral):
        if allowed.folded(name) not in allowed.TABLE_FUNCTIONS:
            yield reasons.table_function(name, _offset(node))
    elif allowed.folded(name) not in allowed.SCALAR_FUNCTIONS | allowed.SQLGLOT_SYNTAX:
        yield reasons.function(name, _offset(node))


def _check_table(table: exp.Table, rendered: bool) -> Iterator[Reason]:
    unlisted = sorted(key for key, value in table.args.items() if value and key not in _TABLE_ARGS)
    is_named = isinstance(table.this, exp.Identifier)
    is_relation = is_named and allowed.folded(table.name) in allowed.RELATIONS
    if unlisted:
        yield reasons.construct(f"{', '.join(unlisted).replace('_', ' ').upper()} after a table", offset=_offset(table))
    if is_relation and not table.catalog and table.db == ("main" if rendered else ""):
        return
    if table.catalog or table.db:
        yield _qualified(table)
    elif isinstance(table.this, exp.Func):
        if type(table.this).__name__ not in allowed.SQLGLOT_TABLE_FUNCTIONS:
            yield reasons.table_function(table.this.sql_name().lower(), _offset(table))
    elif not (is_named and _names_cte(table)):
        yield reasons.table(table.name, _offset(table))


def _qualified(table: exp.Table) -> Reason:
    if isinstance(table.this, exp.Func):
        name = table.this.name if isinstance(table.this, exp.Anonymous) else table.this.sql_name().lower()
        return reasons.qualified_function(".".join([part.name for part in table.parts[:-1]] + [name]), _offset(table))
    return reasons.qualified_table(".".join(part.name for part in table.parts), _offset(table))


def _names_cte(table: exp.Table) -> bool:
    # Not "some WITH defines this name": a definition is seen by the ones after it and by the query it stands on.
    name = allowed.folded(table.name)
    child: exp.Expr = table
    definition: exp.Expr | None = None
    while child.parent is not None:
        parent = child.parent
        if isinstance(child, exp.CTE):
            definition = child
        with_ = parent.args.get("with_")
        if isinstance(with_, exp.With):
            seen = with_.expressions
            if child is with_ and not with_.args.get("recursive"):
                seen = seen[: next(i for i, cte in enumerate(seen) if cte is definition)]
            if any(allowed.folded(cte.alias) == name for cte in seen):
                return True
        child = parent
    return False
