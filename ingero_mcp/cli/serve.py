"""`ingero serve`: receive telemetry, answer agents and people, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import anyio

from ingero_mcp import process_memory
from ingero_mcp.config import ServeSettings, serve_settings

if TYPE_CHECKING:
    from ingero_mcp.server import Started


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """One flag per setting of `config.ServeSettings`."""
    for field in dataclasses.fields(ServeSettings):
        flag = "--" + field.name.replace("_", "-")
        names = [flag, *field.metadata["aliases"]]
        text = field.metadata["doc"].replace("%", "%%")
        if field.default is False:
            parser.add_argument(*names, dest=field.name, action="store_true", default=None, help=text)
        else:
            shown = f" (default {field.default})" if field.default else ""
            parser.add_argument(*names, dest=field.name, type=type(field.default), help=text + shown)
    parser.add_argument("--json", action="store_true", help="print the start-up line as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="ingero: %(message)s")
    flags = {name: value for name, value in vars(arguments).items() if name not in ("command", "json")}
    settings = serve_settings(flags)
    process_memory.give_freed_memory_back()
    process_memory.bound(settings.process_memory_bytes())
    anyio.run(_serve, settings, arguments.json)
    _leave_what_cannot_be_stopped()
    return 0


async def _serve(settings: ServeSettings, as_json: bool) -> None:
    # Only now: it imports DuckDB, which reads once how to handle memory.
    from ingero_mcp.server import Server

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        server = Server(settings)

        async def asked_to_stop() -> None:
            _announce(server.started, as_json)
            async for _ in signals:
                return

        await server.serve(asked_to_stop)


def _leave_what_cannot_be_stopped() -> None:
    from ingero_mcp.store.running import is_any_running

    if is_any_running():
        # Python would end with an abort when the query comes back. Everything accepted was committed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _announce(started: Started, as_json: bool) -> None:
    server = started.server
    for note in started.notes:
        print(f"ingero: {note}", file=sys.stderr, flush=True)
    if as_json:
        print(json.dumps(dataclasses.asdict(server) | {"notes": started.notes}), flush=True)
        return
    print(f"ingero serves {server.db_path} (pid {server.pid})")
    for what, where in (
        ("OTLP/gRPC", server.otlp_addr),
        ("OTLP/HTTP", server.otlp_http_url),
        ("MCP", f"{server.url}/mcp"),
    ):
        if where:
            print(f"  {what:<9} {where}")
    print("  Ctrl-C or SIGTERM ends it", flush=True)
