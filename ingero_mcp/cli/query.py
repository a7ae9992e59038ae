"""`ingero query`: one SQL statement over a database file, or over the local server.

A file of another format (the database of an Ingero agent, a trace, dumps) is read into memory and asked there; nothing
is written.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

from ingero_mcp import run_file
from ingero_mcp.cells import structured
from ingero_mcp.cli.import_file import add_names, names
from ingero_mcp.cli.opened import ask, interruptible, opened, path_of
from ingero_mcp.cli.table import render
from ingero_mcp.errors import ConfigError, StoreLocked
from ingero_mcp.sqlguard import check

_PATH: Final = "/api/v1/query"
_FIELDS: Final = ("columns", "rows", "truncated")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """The statement, and where to run it."""
    parser.add_argument("sql", help='one SELECT statement, e.g. "SELECT node_id, count(*) FROM events GROUP BY 1"')
    parser.add_argument(
        "-d", "--db", help="database file, or any file that can be imported (default: the local server)"
    )
    add_names(parser)
    parser.add_argument("--limit", type=int, default=1000, help="most rows (default %(default)s)")
    parser.add_argument(
        "--json", action="store_true", help="print JSON: columns, rows, truncated; warnings if there are any"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run it and print the rows; a note goes to stderr when there are more."""
    if not 1 <= arguments.limit <= 10_000:
        raise ConfigError("--limit must be from 1 to 10000")
    answer = _from_local_server(arguments) if arguments.db is None else _from_file(arguments)
    if arguments.json:
        print(json.dumps(answer, allow_nan=False))
    elif answer["rows"]:
        print(render(answer["columns"], answer["rows"]))
    else:
        print(f"no rows ({', '.join(answer['columns'])})")
    if answer["truncated"]:
        print(f"ingero: more rows exist; the first {len(answer['rows'])} are shown (--limit)", file=sys.stderr)
    return 0


def _from_file(arguments: argparse.Namespace) -> dict[str, Any]:
    query = check(arguments.sql)
    warnings: list[str] = []
    try:
        with opened(path_of(arguments.db), names(arguments), warnings) as store:
            rows = interruptible(lambda tell: store.query(query, limit=arguments.limit, on_start=tell))
    except StoreLocked as owned:
        if not owned.url:
            raise
        return _ask(owned.url, owned.token_file, arguments)
    cells = [[structured(cell) for cell in row] for row in rows.rows]
    answer = {"columns": list(rows.columns), "rows": cells, "truncated": rows.truncated}
    return answer | {"warnings": warnings} if warnings else answer


def _from_local_server(arguments: argparse.Namespace) -> dict[str, Any]:
    local = run_file.local_server()
    if local is None:
        raise ConfigError("no local server is running; name a database file with -d, or start one with ingero serve")
    return _ask(local.url, local.token_file, arguments)


def _ask(url: str, token_file: str, arguments: argparse.Namespace) -> dict[str, Any]:
    answer = ask(url, token_file, _PATH, {"sql": arguments.sql, "limit": arguments.limit}, set(_FIELDS))
    return {field: answer[field] for field in _FIELDS}
