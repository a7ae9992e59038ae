"""`ingero export`: a timeline for ui.perfetto.dev, or events as Parquet or CSV, as one file.

Over a database file, over any file or folder that can be imported (read into memory), or over the local server. A file
that a server owns is exported by that server.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from ingero_mcp import run_file
from ingero_mcp.api.export import ROWS_HEADER
from ingero_mcp.cells import text
from ingero_mcp.cli.import_file import add_names, keep_clocks, names
from ingero_mcp.cli.opened import interruptible, is_database, opened, path_of
from ingero_mcp.cli.written import STDOUT, Write, written
from ingero_mcp.errors import ConfigError, StoreError, StoreLocked
from ingero_mcp.exported.asked import FORMATS, Asked
from ingero_mcp.exported.begun import begin
from ingero_mcp.limits import MIB, StoreLimits
from ingero_mcp.store import Store
from ingero_mcp.tokens import read_token
from ingero_mcp.tools.call import Call
from ingero_mcp.turns import Cancellation
from ingero_mcp.windows import WINDOW_FORMS

PATH: Final = "/api/v1/export"
# Of the pages of the file no more are kept than an export, which reads each once, has use for.
_LIMITS: Final = StoreLimits(memory_bytes=192 * MIB)
_PATIENCE_S: Final = 120.0


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """What to export, from where, and into which file."""
    parser.add_argument("--format", required=True, choices=FORMATS, help="perfetto: open it at ui.perfetto.dev")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write; - is stdout")
    parser.add_argument(
        "-d", "--db", help="database file, or a trace, dump or folder of them (default: the local server)"
    )
    add_names(parser)
    parser.add_argument("--window", help=f"time range: {WINDOW_FORMS} (default: all)")
    parser.add_argument("--job", metavar="NAME", help="only this job")
    parser.add_argument("--sql", help="in place of events the rows of a SELECT, as parquet or csv")
    parser.add_argument(
        "--spreadsheets", action="store_true", help="csv: an apostrophe before texts that a spreadsheet would execute"
    )
    parser.add_argument("--json", action="store_true", help="say what was written as JSON (on stderr with -o -)")


def run(arguments: argparse.Namespace) -> int:
    """Export, and say what was written."""
    path = None if arguments.db is None else path_of(arguments.db)
    if path is not None and arguments.output != STDOUT and _is_same(path, path_of(arguments.output)):
        raise ConfigError(f"{arguments.output} is what is exported; give another name with -o")
    is_ours = path is None or is_database(path)
    asked = Asked(
        arguments.format,
        window=arguments.window,
        # For a file that is imported it is the name of the cluster, and not a choice among several.
        cluster=arguments.cluster if is_ours else None,
        job=arguments.job,
        sql=arguments.sql,
        spreadsheets=arguments.spreadsheets,
    )
    said = _from_local_server(asked, arguments.output) if path is None else _from_file(path, asked, arguments)
    _say(arguments, said)
    return 0


def _from_file(path: Path, asked: Asked, arguments: argparse.Namespace) -> dict[str, Any]:
    warnings: list[str] = []
    try:
        with opened(path, names(arguments), warnings, _LIMITS) as store:
            if asked.format == "perfetto" and not is_database(path):
                keep_clocks(store)
            said = _exported(store, asked, arguments.output)
    except StoreLocked as owned:
        if not owned.url:
            raise
        return _ask(owned.url, owned.token_file, asked, arguments.output)
    return said | {"warnings": warnings} if warnings else said


def _exported(store: Store, asked: Asked, output: str) -> dict[str, Any]:
    cancellation = Cancellation()
    call = Call(store, None, cancellation=cancellation)

    def export() -> dict[str, Any]:
        begun = begin(call, asked)
        with written(output) as write:
            return _copied(begun.pieces, write, begun.rows)

    def work(tell: Any) -> dict[str, Any]:
        tell(cancellation.cancel)
        return export()

    return interruptible(work)


def _from_local_server(asked: Asked, output: str) -> dict[str, Any]:
    local = run_file.local_server()
    if local is None:
        raise ConfigError("no local server is running; name a database file with -d, or start one with ingero serve")
    return _ask(local.url, local.token_file, asked, output)


def _ask(url: str, token_file: str, asked: Asked, output: str) -> dict[str, Any]:
    with _response(url, token_file, asked) as response, written(output) as write:
        return _copied(_received(url, response), write, int(response.headers.get(ROWS_HEADER, "0")))


@contextmanager
def _response(url: str, token_file: str, asked: Asked) -> Iterator[httpx2.Response]:
    headers = {"Authorization": f"Bearer {read_token(Path(token_file))}"} if token_file else {}
    try:
        with httpx2.stream(
            "GET", f"{url}{PATH}", params=asked.as_parameters(), headers=headers, timeout=_PATIENCE_S
        ) as response:
            if response.status_code != 200:
                response.read()
                raise StoreError(_refusal(url, response))
            yield response
    except httpx2.HTTPError as error:
        raise StoreError(f"the server at {url} does not answer: {error}") from error


def _refusal(url: str, response: httpx2.Response) -> str:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    detail = answer.get("error") if isinstance(answer, dict) else None
    return str(detail or f"the server at {url} answered {response.status_code}")


def _received(url: str, response: httpx2.Response) -> Iterator[bytes]:
    """What the server sends. One that breaks off is an error, never a shorter file."""
    try:
        yield from response.iter_bytes()
    except httpx2.HTTPError as error:
        raise StoreError(f"the server at {url} broke the export off; its log says why: {error}") from error


def _copied(pieces: Iterator[bytes], write: Write, rows: int) -> dict[str, Any]:
    size = 0
    for piece in pieces:
        write(piece)
        size += len(piece)
    return {"rows": rows, "bytes": size}


def _say(arguments: argparse.Namespace, said: dict[str, Any]) -> None:
    told = {"file": arguments.output, "format": arguments.format, **said}
    stream = sys.stderr if arguments.output == STDOUT else sys.stdout
    if arguments.json:
        print(json.dumps(told), file=stream)
    elif arguments.output != STDOUT:
        what = "rows" if arguments.sql is not None else "events"
        print(f"{text(arguments.output)}: {arguments.format}, {said['rows']} {what}, {said['bytes']} bytes")
        if arguments.format == "perfetto":
            print("open it at https://ui.perfetto.dev (it stays in the browser)")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.exists() and other.exists() and one.samefile(other)
    except OSError:
        return False
