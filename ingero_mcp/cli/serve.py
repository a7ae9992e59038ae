"""`ingero serve`: receive telemetry, answer agents and people, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import signal
import sys

import anyio

from ingero_mcp.config import ServeSettings, serve_settings
from ingero_mcp.server import Server, Started


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
    anyio.run(_serve, serve_settings(flags), arguments.json)
    return 0


async def _serve(settings: ServeSettings, as_json: bool) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        server = Server(settings)

        async def asked_to_stop() -> None:
            _announce(server.started, as_json)
            async for _ in signals:
                return

        await server.serve(asked_to_stop)


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
