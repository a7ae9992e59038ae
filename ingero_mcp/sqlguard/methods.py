"""`node_id.upper()`: calls in the style of methods, as the ordinary calls that they stand for."""

from __future__ import annotations

from typing import Any

from ingero_mcp.sqlguard import allowed
from ingero_mcp.sqlguard.engine import Tree
from ingero_mcp.views import relations

_COLUMNS = frozenset(column for columns in relations().values() for column in columns)


def methods_to_calls(tree: Tree) -> None:
    """Change in `tree` each call on a public column into an ordinary one: `upper(node_id)`.

    To DuckDB what stands before the function could be a schema as well, and it looks for that first. In the rewritten
    tree nothing stands there any more, so it is a column whatever schemas there are. Anything else before a function
    stays, and is refused.
    """
    for node in _calls(tree):
        path = node["qualified_name"].get("path", ())
        *before, name = path
        if len(path) in (2, 3) and allowed.folded(path[-2]) in _COLUMNS:
            column = {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": before}
            node["arguments"] = [{"expression": column}, *node.get("arguments", [])]
            # Without arguments the parser has taken count for count(*).
            called = "count" if name == "count_star" else name
            node["function_name"] = called
            node["qualified_name"] = {"path": [called]}
            node.pop("schema", None)
            node.pop("catalog", None)


def _calls(value: Any) -> list[Tree]:
    """The function calls in `value` where a value stands; in FROM nothing is called on a column."""
    found: list[Tree] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, dict):
            if one.get("class") == "FUNCTION" and "qualified_name" in one:
                found.append(one)
            waiting.extend(child for key, child in one.items() if key != "function")
            waiting.extend(one["function"].get("arguments", []) if isinstance(one.get("function"), dict) else [])
    return found
