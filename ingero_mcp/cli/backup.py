"""`ingero backup`: a copy of a database, also while a server writes to it; complete, or not there at all."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

import httpx2

from ingero_mcp import run_file
from ingero_mcp.cells import text
from ingero_mcp.cli.ended import ended_like_ctrl_c
from ingero_mcp.cli.opened import is_database, path_of
from ingero_mcp.errors import ConfigError, StoreError, StoreLocked
from ingero_mcp.limits import MIB
from ingero_mcp.store import open_store
from ingero_mcp.store.new_file import new_file
from ingero_mcp.tokens import read_token

_PATH: Final = "/api/v1/backup"
_LONGEST_S: Final = 3600.0  # a server first makes the whole copy
_MUCH_BYTES: Final = 64 * MIB
_MUCH_ROWS: Final = 1_000_000


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """What to copy, and where to."""
    parser.add_argument("file", metavar="FILE", help="the copy; must not exist")
    parser.add_argument("-d", "--db", help="database file, whether a server owns it or not (default: the local server)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Copy, and say from where and how much."""
    target = path_of(arguments.file)
    database = None if arguments.db is None else path_of(arguments.db)
    if database is not None and not is_database(database):
        raise ConfigError(f"{database} is not a database of ours; make one of it with ingero import")
    sources = [database] if database is not None and database.exists() else []
    with ended_like_ctrl_c(), new_file(target, sources=sources) as new:
        asked = _of_file(database, new) if database is not None else _of_local_server(new)
        size = new.stat().st_size
    if arguments.json:
        print(json.dumps({"file": arguments.file, "of": asked, "bytes": size}))
    else:
        print(f"{text(arguments.file)}: a copy of {text(asked)}, {size / MIB:.1f} MiB")
    return 0


def _of_file(database: Path, new: Path) -> str:
    try:
        with open_store(database, read_only=True) as store:
            store.back_up(new, _Told("rows", _MUCH_ROWS))
    except StoreLocked as owned:
        if not owned.url:
            raise
        download(owned.url, owned.token_file, new)
        return owned.url
    return str(database)


def _of_local_server(new: Path) -> str:
    local = run_file.local_server()
    if local is None:
        raise ConfigError("no local server is running; name a database file with -d, or start one with ingero serve")
    download(local.url, local.token_file, new)
    return local.url


def download(url: str, token_file: str, new: Path) -> None:
    """Write the copy that the server at `url` makes of its database to `new`; StoreError if it does not."""
    headers = {"Authorization": f"Bearer {read_token(Path(token_file))}"} if token_file else {}
    tell = _Told("bytes", _MUCH_BYTES)
    try:
        with httpx2.stream("POST", f"{url}{_PATH}", json={}, headers=headers, timeout=_LONGEST_S) as response:
            if response.status_code != 200:
                raise StoreError(_refusal(url, response))
            whole, done = int(response.headers.get("content-length", 0)), 0
            with new.open("wb") as file:
                for chunk in response.iter_bytes(MIB):
                    done += file.write(chunk)
                    tell(done, whole)
    except httpx2.HTTPError as error:
        raise StoreError(f"the server at {url} did not send the copy: {error or type(error).__name__}") from error
    if done != whole or not is_database(new):
        raise StoreError(f"the server at {url} did not send a whole database ({done} of {whole} bytes)")


def _refusal(url: str, response: httpx2.Response) -> str:
    response.read()
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"the server at {url} answered {response.status_code}"


class _Told:
    """Says on stderr how far it is, a tenth at a time, where there is much to do."""

    def __init__(self, what: str, much: int) -> None:
        self._what = what
        self._much = much
        self._tenths = 0

    def __call__(self, done: int, whole: int) -> None:
        tenths = 10 * done // whole if whole else 10
        if whole >= self._much and tenths > self._tenths:
            self._tenths = tenths
            print(f"ingero: {done} of {whole} {self._what}", file=sys.stderr)
