"""`ingero mcp`: the MCP tools on stdin and stdout, over a database file or through a running server.

Stays light: only a database file needs the MCP SDK and DuckDB, and only then is `mcp_over_file` imported.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path

from ingero_mcp import run_file
from ingero_mcp.bridge import Bridge, connect
from ingero_mcp.config import ServeSettings
from ingero_mcp.errors import ConfigError, StoreLocked
from ingero_mcp.tokens import read_token


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """What to answer from, and the spelling of tool names."""
    parser.add_argument("-d", "--db", help="database file (default: the local server, else its default file)")
    parser.add_argument("--server", help="a running server to pass everything on to, e.g. http://gpu-head:8080")
    parser.add_argument("--token-file", help="file with that server's token")
    parser.add_argument(
        "--tool-names", choices=("auto", "dotted", "underscore"), default="auto", help="spelling of tool names"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until stdin closes. Only the protocol goes to stdout."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="ingero: %(message)s")
    if arguments.server and arguments.db:
        raise ConfigError("give --server or -d, not both")
    local = None if arguments.server or arguments.db else run_file.local_server()
    if arguments.server:
        return _pass_on(arguments.server.rstrip("/"), arguments.token_file or "", arguments.tool_names)
    if local is not None:
        return _pass_on(local.url, local.token_file, arguments.tool_names)
    path = Path(arguments.db or ServeSettings().db_path).expanduser()
    if not path.exists():
        start = "" if arguments.db else "; start a server with: ingero serve"
        raise ConfigError(f"{path} does not exist{start}")
    try:
        importlib.import_module("ingero_mcp.cli.mcp_over_file").serve(path, arguments.tool_names)
    except StoreLocked as owned:
        if not owned.url:
            raise
        return _pass_on(owned.url, owned.token_file, arguments.tool_names)
    return 0


def _pass_on(url: str, token_file: str, tool_names: str) -> int:
    connect(url).close()
    token = read_token(Path(token_file)) if token_file else ""
    Bridge(url, token, sys.stdout.buffer, tool_names).run(sys.stdin.buffer)
    return 0
