"""`ingero query`: one SQL statement over a database file, or over the local server.

A database of an Ingero agent (SQLite) is read into memory and asked there; nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx2

from ingero_mcp import run_file
from ingero_mcp.cells import structured, text
from ingero_mcp.cli.import_file import add_names, names, put
from ingero_mcp.cli.table import render
from ingero_mcp.errors import ConfigError, ImportFileError, StoreError, StoreLocked
from ingero_mcp.events import Rows
from ingero_mcp.importers.ingero.sqlite import is_sqlite
from ingero_mcp.importers.registry import open_file
from ingero_mcp.sqlguard import CheckedQuery, check
from ingero_mcp.store import Store, open_store
from ingero_mcp.tokens import read_token

_MOST_IN_MEMORY: Final = 3_000_000


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """The statement, and where to run it."""
    parser.add_argument("sql", help='one SELECT statement, e.g. "SELECT node_id, count(*) FROM events GROUP BY 1"')
    parser.add_argument("-d", "--db", help="database file, ours or an Ingero agent's (default: ask the local server)")
    add_names(parser)
    parser.add_argument("--limit", type=int, default=1000, help="most rows (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON: columns, rows, truncated")


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
    try:
        rows = _from_store(query, arguments)
    except StoreLocked as owned:
        if not owned.url:
            raise
        return _ask(owned.url, owned.token_file, arguments)
    cells = [[structured(cell) for cell in row] for row in rows.rows]
    return {"columns": list(rows.columns), "rows": cells, "truncated": rows.truncated}


def _from_store(query: CheckedQuery, arguments: argparse.Namespace) -> Rows:
    path = Path(arguments.db).expanduser()
    if is_sqlite(path):
        return _from_agent(path, query, arguments)
    with open_store(path, read_only=True) as store:
        return _run(store, query, arguments.limit)


def _from_agent(path: Path, query: CheckedQuery, arguments: argparse.Namespace) -> Rows:
    read = open_file(path, names(arguments))
    if read.rows > _MOST_IN_MEMORY:
        raise ImportFileError(
            f"{path} holds {read.rows} events, more than are read into memory ({_MOST_IN_MEMORY}); import it first: "
            f"ingero import {path} -d events.duckdb"
        )
    for warning in read.warnings:
        print(f"ingero: {text(str(path))}: {warning}", file=sys.stderr)
    with open_store(None) as store:
        put(read, store)
        return _run(store, query, arguments.limit)


def _run(store: Store, query: CheckedQuery, limit: int) -> Rows:
    """The query in a thread of its own, so that Ctrl-C is heard while the engine is at work."""
    interrupts: list[Callable[[], None]] = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(store.query, query, limit=limit, on_start=interrupts.append)
        try:
            return running.result()
        except KeyboardInterrupt:
            for interrupt in interrupts:
                interrupt()
            raise


def _from_local_server(arguments: argparse.Namespace) -> dict[str, Any]:
    local = run_file.local_server()
    if local is None:
        raise ConfigError("no local server is running; name a database file with -d, or start one with ingero serve")
    return _ask(local.url, local.token_file, arguments)


def _ask(url: str, token_file: str, arguments: argparse.Namespace) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {read_token(Path(token_file))}"} if token_file else {}
    try:
        response = httpx2.post(
            f"{url}/api/v1/query",
            json={"sql": arguments.sql, "limit": arguments.limit},
            headers=headers,
            timeout=60.0,
        )
        answer = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise StoreError(f"the server at {url} does not answer: {error}") from error
    if (
        response.status_code != 200
        or not isinstance(answer, dict)
        or not {"columns", "rows", "truncated"} <= answer.keys()
    ):
        detail = answer.get("error") if isinstance(answer, dict) else None
        raise StoreError(str(detail or f"the server at {url} answered {response.status_code}"))
    return {key: answer[key] for key in ("columns", "rows", "truncated")}
