"""`ingero demo`: the whole way once, with real parts: OTLP/gRPC in, DuckDB, guarded SQL through an MCP session out."""

from __future__ import annotations

import argparse
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent, wrap
from typing import Any, Final

import anyio
from anyio import to_thread
from mcp import Client
from mcp.types import TextContent

from ingero_mcp.cells import text
from ingero_mcp.cli.demo_files import write_files
from ingero_mcp.cli.opened import path_of
from ingero_mcp.clock import monotonic_s, now_ns
from ingero_mcp.config import ServeSettings
from ingero_mcp.errors import ConfigError, StoreError
from ingero_mcp.otlp.encode import encode_points, encode_spans
from ingero_mcp.run_file import RunningServer
from ingero_mcp.sender import Sender
from ingero_mcp.server import Server
from ingero_mcp.synth.story import MS, Story

_EXPLAIN_STALL: Final = "fleet.cluster.explain_stall"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Whether to stay, or to leave files in place of a server."""
    parser.add_argument(
        "--out", metavar="DIR", help="no server: write the databases of three nodes, all of them in one, and a timeline"
    )
    parser.add_argument("--keep", action="store_true", help="leave the server running until Ctrl-C")


def run(arguments: argparse.Namespace) -> int:
    """Tell the story, ask for the culprit, say how to go on."""
    if arguments.out is not None:
        if arguments.keep:
            raise ConfigError("--out writes files and needs no server; --keep does not go with it")
        _say_files(write_files(path_of(arguments.out), now_ns() - 60_000 * MS))
        return 0
    with tempfile.TemporaryDirectory(prefix="ingero-demo-") as folder:
        was_interrupted = anyio.run(_demo, Path(folder), arguments.keep)
    return 130 if was_interrupted and not arguments.keep else 0


def _say_files(made: dict[Path, int]) -> None:
    for path, events in made.items():
        print(f"{text(str(path))}: {events} events")
    everything, timeline = list(made)[-2:]
    print("\nTwo hosts train a model together, a third one its own; every 14th step of the two")
    print("takes four times as long. Who holds them up, and what does it look like?\n")
    print(f"  ingero explain -d {text(str(everything))}")
    print(f"  open {text(str(timeline))} at https://ui.perfetto.dev (it stays in the browser)")


async def _demo(folder: Path, keep: bool) -> bool:
    """Run it; says whether a signal ended it."""
    settings = ServeSettings(
        db_path=str(folder / "demo.duckdb"),
        otlp_addr="127.0.0.1:0",
        otlp_http_addr="127.0.0.1:0",
        http_addr="127.0.0.1:0",
    )
    server = Server(settings, public=False)
    interrupted = anyio.Event()

    async def end_on_signal(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                interrupted.set()
                scope.cancel()
                return

    async def show_and_stay() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end_on_signal, tasks.cancel_scope)
            await _show(server.started.server)
            if keep:
                _say_it_stays(server.started.server)
                await anyio.sleep_forever()
            tasks.cancel_scope.cancel()

    await server.serve(show_and_stay)
    return interrupted.is_set()


async def _show(server: RunningServer) -> None:
    story = Story(start_ns=now_ns() - 60_000 * MS)
    print("Eight ranks on two hosts train a model. Every host looks healthy, but every")
    print("14th step takes four times as long. Which rank is it, and where?\n")
    began_s = monotonic_s()
    with Sender(server.otlp_addr) as sender:
        events = await to_thread.run_sync(_send, story, sender, abandon_on_cancel=True)
    print(f"1. Sent {events} events over OTLP/gRPC in {monotonic_s() - began_s:.1f} s; each batch was")
    print(f"   acknowledged after its commit. The clock of {story.truth.culprit_node} runs 37 ms ahead,")
    print("   there is jitter, and the probe lost one event.\n")
    async with Client(f"{server.url}/mcp") as client:
        print("2. Ask through an MCP session, as an agent would.\n")
        print(f"> {_EXPLAIN_STALL}\n")
        answer = await _ask(client)
    print(indent("\n".join(fold(answer.text, 76)), "    "))
    print(_conclusion(answer.structured))


def _send(story: Story, sender: Sender) -> int:
    sent = 0
    for node, spans, points in story.tell():
        resource = story.resource(node)
        if spans:
            sender.send("traces", encode_spans(resource, spans))
        if points:
            sender.send("logs", encode_points(resource, points))
        sent += len(spans) + len(points)
    return sent


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str
    structured: dict[str, Any]


async def _ask(client: Client) -> _Answer:
    result = await client.call_tool(_EXPLAIN_STALL, {"window": "all"})
    said = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    if result.is_error or result.structured_content is None:
        raise StoreError(f"{_EXPLAIN_STALL} failed: {said}")
    return _Answer(said, dict(result.structured_content))


def fold(said: str, width: int) -> list[str]:
    """The lines of a text, those that are too long broken between words."""
    return [
        piece
        for line in said.splitlines()
        for piece in wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
    ]


def _conclusion(said: dict[str, Any]) -> str:
    named = ", ".join(f"rank {culprit['rank']} on {culprit['node_id']}" for culprit in said["culprits"])
    steps = said.get("affected_steps", {"count": 0, "total": 0})
    period = f", every {said['period_steps']} steps" if "period_steps" in said else ""
    cost = said.get("cost") or {}
    lost = f"{cost.get('gpu_hours_per_day', 0):.3g} GPU-hours a day"
    if "usd_per_day_low" in cost:
        lost += f", {cost['usd_per_day_low']:.0f} to {cost['usd_per_day_high']:.0f} USD"
    return dedent(
        f"""
        So it is {named or "nobody"}, in {steps["count"]} of {steps["total"]} steps{period}.
        Cause: {said["cause"]}. Left alone it costs {lost}.
        One call said who, where, since when and why; an agent can make it.

        Next: ingero demo --keep leaves this server running, for an agent of yours.
          Claude Code     claude mcp add --transport http ingero URL-IT-PRINTS
          Claude Desktop  copy examples/claude_desktop_config.json
          Cursor          the same, into ~/.cursor/mcp.json"""
    )


def _say_it_stays(server: RunningServer) -> None:
    print(f"\nStill running (pid {server.pid}); Ctrl-C ends it.")
    print(f"  MCP:  claude mcp add --transport http ingero {server.url}/mcp")
    print(f"  CLI:  ingero explain -d {server.db_path}")
    print(f"  SQL:  ingero query -d {server.db_path} 'SELECT count(*) FROM events'")
    print(f"  OTLP: {server.otlp_addr}", flush=True)
