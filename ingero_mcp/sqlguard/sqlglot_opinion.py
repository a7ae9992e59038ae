"""The first opinion: sqlglot's tree of the text holds only listed nodes, functions and tables.

sqlglot reads SQL of many dialects and accepts more than DuckDB does, so its tree is held to a list of what may
be in it; a search for what is forbidden would miss the unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import sqlglot
from sqlglot import exp

from ingero_mcp.errors import Reason
from ingero_mcp.sqlguard import allowed, reasons

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
        return [_syntax(error)]
    if len(statements) != 1:
        return [reasons.not_one(len(statements))]
    root = statements[0]
    assert root is not None
    if not isinstance(root, _ROOTS):
        return [_not_a_query(root)]
    return reasons.unique(reason for node in root.walk() for reason in _check(node, rendered))


def _is_empty(tree: exp.Expr | None) -> bool:
    return tree is None or isinstance(tree, exp.Semicolon)


def _syntax(error: Exception) -> Reason:
    details = getattr(error, "errors", None) or [{}]
    text = details[0].get("description") or "it cannot be read"
    return Reason("syntax", f"Syntax error: {text}.", "Write it in plainer SQL. " + reasons.SELECT_ONLY)


def _not_a_query(root: exp.Expr) -> Reason:
    word = root.name if isinstance(root, exp.Command) else root.key
    return Reason("not_a_select", f"{word.upper()} is not allowed.", "This only reads. " + reasons.SELECT_ONLY)


def _check(node: exp.Expr, rendered: bool) -> Iterator[Reason]:
    if isinstance(node, exp.Anonymous):
        yield from _check_anonymous(node)
    elif type(node).__name__ not in (
        allowed.SQLGLOT_FUNCTIONS if isinstance(node, exp.Func) else allowed.SQLGLOT_NODES
    ):
        yield _unlisted(node)
    elif isinstance(node, exp.GenerateSeries) and not isinstance(node.parent, exp.Table | exp.Lateral):
        yield reasons.function("range" if node.args.get("is_end_exclusive") else "generate_series")
    if _is_dynamic_pivot(node):
        yield reasons.dynamic_pivot()
    elif isinstance(node, exp.Table):
        yield from _check_table(node, rendered)
    elif isinstance(node, exp.With):
        if node.args.get("recursive"):
            yield reasons.recursive()
        names = (cte.alias for cte in node.expressions)
        yield from (reasons.shadowed(name) for name in names if allowed.folded(name) == allowed.NEVER_SHADOWED)


def _is_dynamic_pivot(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Pivot) or node.args.get("unpivot") or node.args.get("fields"):
        return False
    return not all(isinstance(on, exp.In) and on.expressions for on in node.expressions)


def _unlisted(node: exp.Expr) -> Reason:
    if isinstance(node, exp.Func):
        name = node.sql_name().lower()
        in_from = isinstance(node.parent, exp.Table | exp.Lateral)
        return reasons.table_function(name) if in_from else reasons.function(name)
    if isinstance(node, exp.Placeholder | exp.Parameter):
        return reasons.parameter()
    return reasons.construct(node.key.upper())


def _check_anonymous(node: exp.Anonymous) -> Iterator[Reason]:
    name = node.name
    if isinstance(node.parent, exp.Table | exp.Lateral):
        if allowed.folded(name) not in allowed.TABLE_FUNCTIONS:
            yield reasons.table_function(name)
    elif allowed.folded(name) not in allowed.SCALAR_FUNCTIONS | allowed.SQLGLOT_SYNTAX:
        yield reasons.function(name)


def _check_table(table: exp.Table, rendered: bool) -> Iterator[Reason]:
    unlisted = sorted(key for key, value in table.args.items() if value and key not in _TABLE_ARGS)
    is_named = isinstance(table.this, exp.Identifier)
    is_relation = is_named and allowed.folded(table.name) in allowed.RELATIONS
    if unlisted:
        yield reasons.construct(f"{', '.join(unlisted).replace('_', ' ').upper()} after a table")
    if is_relation and not table.catalog and table.db == ("main" if rendered else ""):
        return
    if table.catalog or table.db:
        yield _qualified(table)
    elif isinstance(table.this, exp.Func):
        if type(table.this).__name__ not in allowed.SQLGLOT_TABLE_FUNCTIONS:
            yield reasons.table_function(table.this.sql_name().lower())
    elif not (is_named and _names_cte(table)):
        yield reasons.table(table.name)


def _qualified(table: exp.Table) -> Reason:
    if isinstance(table.this, exp.Func):
        name = table.this.name if isinstance(table.this, exp.Anonymous) else table.this.sql_name().lower()
        return reasons.qualified_function(".".join([part.name for part in table.parts[:-1]] + [name]))
    return reasons.qualified_table(".".join(part.name for part in table.parts))


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
