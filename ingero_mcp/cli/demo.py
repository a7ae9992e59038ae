"""`ingero demo`: the whole way once, with real parts: OTLP/gRPC in, DuckDB, guarded SQL through an MCP session out."""

from __future__ import annotations

import argparse
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, Final

import anyio
from anyio import to_thread
from mcp import Client
from mcp.types import TextContent

from ingero_mcp.cli.table import render
from ingero_mcp.clock import monotonic_s, now_ns
from ingero_mcp.config import ServeSettings
from ingero_mcp.errors import StoreError
from ingero_mcp.otlp.encode import encode_points, encode_spans
from ingero_mcp.run_file import RunningServer
from ingero_mcp.sender import Sender
from ingero_mcp.server import Server
from ingero_mcp.synth.story import MS, Story

_RUN_ANALYSIS: Final = "fleet.cluster.run_analysis"
_EVENT_HISTORY: Final = "fleet.cluster.event_history"

# A rank that comes late to an all-reduce hardly waits in the synchronize after it; the others wait for it. The
# durations are each host's own, so the offset between the hosts' clocks does not matter.
_WHO_IS_LATE: Final = """
    WITH waits AS (
      SELECT step, rank, node_id, duration_ns,
             max(duration_ns) OVER (PARTITION BY step) AS longest_ns
      FROM events WHERE metric_name = 'cudaStreamSynchronize'
    ), late AS (
      SELECT step, rank, node_id, (longest_ns - duration_ns) / 1e6 AS late_ms
      FROM waits
    )
    SELECT rank, node_id, round(median(late_ms), 1) AS late_ms,
           list(step ORDER BY step) AS late_steps
    FROM late WHERE late_ms > 10 * (SELECT median(late_ms) FROM late)
    GROUP BY ALL ORDER BY late_ms DESC
"""
_WHAT_IT_DID: Final = """
    SELECT metric_name, count(*) FILTER (WHERE step = {before}) AS in_step_{before},
           count(*) FILTER (WHERE step = {step}) AS in_step_{step},
           round(sum(duration_ns) FILTER (WHERE step = {step}) / 1e6, 1) AS ms
    FROM events
    WHERE rank = {rank} AND step IN ({before}, {step}) AND metric_name LIKE 'cuda%'
    GROUP BY ALL ORDER BY ms DESC
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Whether to stay."""
    parser.add_argument("--keep", action="store_true", help="leave the server running until Ctrl-C")


def run(arguments: argparse.Namespace) -> int:
    """Tell the story, ask for the culprit, say how to go on."""
    with tempfile.TemporaryDirectory(prefix="ingero-demo-") as folder:
        was_interrupted = anyio.run(_demo, Path(folder), arguments.keep)
    return 130 if was_interrupted and not arguments.keep else 0


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
        agent = _Agent(client)
        print("2. Ask through an MCP session, as an agent would.\n")
        late = await agent.ask(_WHO_IS_LATE)
        culprit = _Culprit(*late["rows"][0]) if late["rows"] else None
        if culprit is None:
            raise StoreError("the demo's answer has no rows: please report this, with the version of ingero")
        step = culprit.late_steps[0]
        did = await agent.ask(_WHAT_IT_DID.format(rank=culprit.rank, before=step - 1, step=step))
        await agent.history("probe.gap")
    print(_conclusion(culprit, did["rows"], story.truth.steps))


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
class _Culprit:
    rank: int
    node_id: str
    late_ms: float
    late_steps: list[int]


class _Agent:
    """An MCP client that shows what it asks and what it is answered."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, sql: str) -> Any:
        """Run SQL; returns the structured answer."""
        statement = dedent(sql).strip()
        print(f"> {_RUN_ANALYSIS}\n{indent(statement, '    ')}")
        return await self._call(_RUN_ANALYSIS, {"sql": statement})

    async def history(self, metric: str) -> Any:
        """What was recorded of one metric."""
        print(f"> {_EVENT_HISTORY} metric={metric}")
        return await self._call(_EVENT_HISTORY, {"metric": metric}, columns=("node_id", "metric_name", "attrs_json"))

    async def _call(self, tool: str, arguments: dict[str, Any], columns: tuple[str, ...] = ()) -> Any:
        result = await self._client.call_tool(tool, arguments)
        answer = result.structured_content
        if result.is_error or answer is None:
            texts = [block.text for block in result.content if isinstance(block, TextContent)]
            raise StoreError(f"{tool} failed: {' '.join(texts)}")
        names, rows = list(answer["columns"]), answer["rows"]
        if columns:
            places = [names.index(column) for column in columns]
            names, rows = list(columns), [[row[place] for place in places] for row in rows]
        print(f"\n{indent(render(names, rows, width=76), '    ')}\n")
        return answer


def _conclusion(culprit: _Culprit, did: list[list[Any]], steps: int) -> str:
    gaps = {later - earlier for earlier, later in zip(culprit.late_steps, culprit.late_steps[1:], strict=False)}
    period = f", every {gaps.pop()} steps" if len(gaps) == 1 else ""
    new = [f"{calls} {name}" for name, before, calls, _ in did if calls and not before]
    how_often = f"in {len(culprit.late_steps)} of {steps} steps{period}"
    return dedent(
        f"""\
        Rank {culprit.rank} on {culprit.node_id} comes {culprit.late_ms:.0f} ms late {how_often};
        the other seven wait for it. In such a step, and not in the one before, it
        makes {" and ".join(new)} calls.

        Next: ingero demo --keep leaves this server running, for an agent of yours.
          Claude Code     claude mcp add --transport http ingero URL-IT-PRINTS
          Claude Desktop  copy examples/claude_desktop_config.json
          Cursor          the same, into ~/.cursor/mcp.json"""
    )


def _say_it_stays(server: RunningServer) -> None:
    print(f"\nStill running (pid {server.pid}); Ctrl-C ends it.")
    print(f"  MCP:  claude mcp add --transport http ingero {server.url}/mcp")
    print(f"  SQL:  ingero query -d {server.db_path} 'SELECT count(*) FROM events'")
    print(f"  OTLP: {server.otlp_addr}", flush=True)
