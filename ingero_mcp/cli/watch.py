"""`ingero watch`: what holds jobs up, as a server's watch finds it: what goes on, then each change as it comes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2

from ingero_mcp import run_file
from ingero_mcp.cells import escaped
from ingero_mcp.errors import ConfigError, StoreError
from ingero_mcp.tokens import read_token

_PATH: Final = "/api/v1/findings"
_WAIT_S: Final = 30
_TIMEOUT_S: Final = 60.0
_AGAIN_S: Final = 5.0
_MOST: Final = 1000
_MARKS: Final = {"opened": "+", "changed": "~", "closed": "-"}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Whose watch to listen to."""
    parser.add_argument("--server", metavar="URL", help="server to ask, e.g. http://gpu-head:8080 (default: the local)")
    parser.add_argument("--token-file", metavar="FILE", default="", help="file that holds the server's token")
    parser.add_argument("--once", action="store_true", help="print what goes on now, and end")
    parser.add_argument("--json", action="store_true", help="print each finding as one line of JSON (NDJSON)")


def run(arguments: argparse.Namespace) -> int:
    """Print until Ctrl-C; with --once what goes on now."""
    url, token_file = arguments.server, arguments.token_file
    if url is None:
        local = run_file.local_server()
        if local is None:
            raise ConfigError("no local server is running; name one with --server, or start one with ingero serve")
        url, token_file = local.url, token_file or local.token_file
    headers = {"Authorization": f"Bearer {read_token(Path(token_file))}"} if token_file else {}
    with suppress(KeyboardInterrupt):
        anyio.run(_watch, url.rstrip("/"), headers, arguments.once, arguments.json)
    return 0


async def _watch(url: str, headers: Mapping[str, str], once: bool, as_json: bool) -> None:
    async with httpx2.AsyncClient(base_url=url, headers=dict(headers), timeout=_TIMEOUT_S) as client:
        answer = await _ask(client, {"state": "open", "limit": str(_MOST)})
        if not answer.get("watch_every_s"):
            raise ConfigError(f"the server at {url} does not watch; it was started with --watch-every-s 0")
        for one in sorted(answer["findings"], key=_start):
            _show(one, as_json)
        if not answer["findings"] and not as_json:
            print("nothing holds a job up just now", flush=True)
        if once:
            return
        newest = await _ask(client, {"limit": "1"})
        await _follow(client, str(newest["next"]), as_json)


async def _follow(client: httpx2.AsyncClient, after: str, as_json: bool) -> None:
    """Print what is new for ever; a server that is restarted is waited for."""
    is_away = False
    while True:
        try:
            answer = await _ask(client, {"after": after, "wait_s": str(_WAIT_S), "limit": str(_MOST)})
        except StoreError as error:
            if not is_away:
                print(f"ingero: {escaped(str(error))}; trying again every {_AGAIN_S:g} s", file=sys.stderr, flush=True)
            is_away = True
            await anyio.sleep(_AGAIN_S)
            continue
        is_away = False
        for one in answer["findings"]:
            _show(one, as_json)
        after = str(answer["next"])


async def _ask(client: httpx2.AsyncClient, asked: Mapping[str, str]) -> dict[str, Any]:
    try:
        response = await client.get(_PATH, params=dict(asked))
        answer = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise StoreError(f"the server at {client.base_url} does not answer: {error}") from error
    is_ours = (
        isinstance(answer, dict) and {"findings", "next"} <= answer.keys() and isinstance(answer["findings"], list)
    )
    if response.status_code != 200 or not is_ours:
        detail = answer.get("error") if isinstance(answer, dict) else None
        raise StoreError(str(detail or f"the server at {client.base_url} answered {response.status_code}"))
    return dict(answer)


def _start(one: Any) -> str:
    return str(one.get("start")) if isinstance(one, dict) else ""


def _show(one: Any, as_json: bool) -> None:
    try:
        _print(one, as_json)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError("the server's findings are not what this ingero knows; is it of another version?") from error


def _print(one: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(one, allow_nan=False), flush=True)
        return
    when = one["end"] if one["state"] == "closed" else one["start"]
    job = f" job {one['job_id']}" if one["job_id"] else ""
    line = f"{_MARKS.get(one['what'], '?')} {when}  {one['severity']:<6} {one['verdict']}{job}: {one['at_fault']}"
    line += f", {one['cause']} ({one['confidence']:.2f})" if one["state"] == "open" else ", over"
    print(escaped(line), flush=True)
    if one["what"] != "closed" and one["summary"]:
        print(f"    {escaped(one['summary'])}", flush=True)
