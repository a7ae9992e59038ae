"""DuckDB as a parser: text to tree and tree to text, on an instance of its own that holds nothing.

The instance is in memory, empty and locked, and knows no file, extension or table of the store, so that a text
which turns out to do more than be parsed finds nothing to do it to.
"""

from __future__ import annotations

import functools
import json
import threading
from typing import Any

import duckdb

Tree = dict[str, Any]

_SERIALIZE = "SELECT json_serialize_sql(?::VARCHAR, skip_null := true, skip_empty := true, skip_default := true)"
_RENDER = "SELECT json_deserialize_sql(?::JSON)"
_START = threading.Lock()
_NOWHERE = 1 << 62  # DuckDB writes 2^64 - 1


@functools.cache
def _started() -> duckdb.DuckDBPyConnection:
    instance = duckdb.connect(
        ":memory:",
        config={
            "threads": "1",
            "memory_limit": "256MB",
            "max_expression_depth": "200",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
        },
    )
    instance.execute("SET enable_external_access = false")
    instance.execute("SET lock_configuration = true")
    return instance


def _ask(question: str, text: str) -> str:
    with _START:
        cursor = _started().cursor()
    with cursor:
        row = cursor.execute(question, [text]).fetchone()
    assert row is not None
    return str(row[0])


def parse(sql: str) -> Tree:
    """DuckDB's tree of `sql`; one with `error` set when it cannot be read or is not made of queries.

    The text is bound as a value: it is parsed and never run.
    """
    try:
        tree: Tree = json.loads(_ask(_SERIALIZE, sql))
    except duckdb.Error as error:
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            _started.cache_clear()  # such an error may leave an instance that refuses everything
        return {"error": True, "error_type": "parser", "error_message": str(error)}
    return tree


def place_of(node: Tree) -> int | None:
    """Where `node` stands in the text, in bytes; None where DuckDB does not know."""
    place = int(node.get("query_location", _NOWHERE))
    return place if place < _NOWHERE else None


def render(tree: Tree) -> str:
    """The text that DuckDB writes for `tree`."""
    return _ask(_RENDER, json.dumps(tree))
