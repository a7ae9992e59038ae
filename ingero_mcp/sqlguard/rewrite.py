"""From the tree of an allowed text to the text that the engine runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingero_mcp.sqlguard import allowed
from ingero_mcp.sqlguard.engine import Tree, render


def rewrite(tree: Tree, relations: list[Tree]) -> str:
    """Text rendered by DuckDB from its own tree, with `relations` as main.<name> and lambdas in the new spelling.

    Changes `tree`, of which `relations` are nodes. Qualified names are read past temporary tables and views of the
    same name; what names a common table expression stays as it is.

    DuckDB's renderer and not sqlglot's, because of what was measured: over the allow lists DuckDB's text gave the
    rows and types of the original each time, and the column names but for those of unnamed subqueries, which are
    their text. sqlglot's renames columns more often (list becomes array_agg).
    """
    for table in relations:
        table["schema_name"] = "main"
        table["qualified_name"] = {"path": ["main", table["table_name"]]}
    for node in _nodes(tree):
        if node.get("class") == "FUNCTION" and allowed.folded(node["function_name"]) in allowed.LAMBDA_FUNCTIONS:
            _spell_lambda(node)
    return _without_brackets(render(tree))


def _nodes(value: Any) -> Iterator[Tree]:
    if isinstance(value, list):
        for item in value:
            yield from _nodes(item)
    elif isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _nodes(item)


def _spell_lambda(function: Tree) -> None:
    # `x -> x + 1` is an error at run time in DuckDB 2.0 and has the same tree as JSON's `->`; only behind the list
    # argument of these functions is it surely a lambda.
    for argument in function.get("arguments", [])[1:]:
        if argument["expression"].get("class") == "LAMBDA":
            argument["expression"]["syntax_type"] = "LAMBDA_KEYWORD"


def _without_brackets(sql: str) -> str:
    # DuckDB renders `(lambda x: ...)`, which sqlglot cannot read; the same without the brackets both can. The
    # rendered text has no comments and only '...' and "..." as quotes. It is parsed and checked again anyway.
    kept: list[str] = []
    lambdas: list[bool] = []
    quote = ""
    for place, char in enumerate(sql):
        if quote or char in "'\"":
            quote = "" if char == quote else quote or char
        elif char == "(":
            lambdas.append(sql.startswith("(lambda ", place))
            if lambdas[-1]:
                continue
        elif char == ")" and lambdas and lambdas.pop():
            continue
        kept.append(char)
    return "".join(kept)
