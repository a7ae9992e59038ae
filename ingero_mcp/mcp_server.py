"""The MCP server: the tools, resources and the prompt of `tools`, spoken over any transport.

Works in both eras of the protocol (with a handshake, and 2026-07-28 without one). `build` opens no address
and knows of no transport; who may connect is decided where it is served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any, Final, cast, get_args

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import CallToolResult, ContentBlock, TextContent, ToolAnnotations
from pydantic import Field

from ingero_mcp import __version__
from ingero_mcp.clock import WallClock, now_ns
from ingero_mcp.errors import ConfigError, IngeroError
from ingero_mcp.limits import StoreLimits
from ingero_mcp.tools import TOOLS, guide
from ingero_mcp.tools.answer import Answer, finish
from ingero_mcp.tools.arguments import schema_of, take
from ingero_mcp.tools.call import Call, Reader
from ingero_mcp.tools.names import Listener, Spelling, ToolNames
from ingero_mcp.tools.refusal import refusal
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.turns import Cancellation, Turns, Wait

TOOL_NAMES_HEADER: Final = "ingero-tool-names"
"""HTTP header with which a client chooses the spelling itself (our own stdio bridge passes its flag on)."""

_NOTABLE_WAIT_S: Final = 0.5
# What these return is ours and names tools; an answer of a tool holds recorded data and is left alone.
_NAMES_TOOLS: Final = frozenset({"tools/list", "prompts/list", "prompts/get", "initialize", "server/discover"})

_Request = ServerRequestContext[Any, Any]
_Answering = Callable[[dict[str, Any], Context[Any, Any]], Awaitable[CallToolResult]]


def build(
    store: Reader,
    *,
    tool_names: str = "auto",
    clock: WallClock = now_ns,
    live: bool = True,
    version: str = __version__,
    turns: Turns | None = None,
) -> MCPServer:
    """An MCP server over a store.

    `tool_names` is auto (by client), dotted or underscore; ConfigError for anything else. On a `live` server
    relative windows end now, on a file at its newest event. `turns` says
    whose query runs next, where others ask the same store.
    """
    if tool_names not in get_args(ToolNames):
        raise ConfigError(f"tool names {tool_names!r}: must be one of {', '.join(get_args(ToolNames))}")
    spelling = Spelling((tool.name for tool in TOOLS), cast(ToolNames, tool_names))
    desk = _Desk(store, clock if live else None, spelling, turns or Turns(StoreLimits().concurrent_queries))
    server: MCPServer = MCPServer(
        "ingero",
        title="Ingero: GPU cluster telemetry",
        instructions=guide.INSTRUCTIONS,
        version=version,
        tools=[_registered(tool, desk.answering(tool)) for tool in TOOLS],
        middleware=[_respelling(spelling)],
        log_level="WARNING",
    )
    _add_resources(server, desk)
    _add_prompt(server)
    return server


class _Desk:
    """Takes calls in: gives each what it needs, waits for its turn, and turns what comes out into a result."""

    def __init__(self, store: Reader, clock: WallClock | None, spelling: Spelling, turns: Turns) -> None:
        self._store = store
        self._clock = clock
        self._spelling = spelling
        self._turns = turns

    def answering(self, tool: FleetTool) -> _Answering:
        """The function that answers calls of one tool."""
        schema = schema_of(tool.arguments)

        async def answer(arguments: dict[str, Any], context: Context[Any, Any]) -> CallToolResult:
            request = context.request_context
            call = self.call(_listener(request))
            try:
                given = tool.arguments(**take(arguments, schema, tool.example))
                return await self._turns.run(
                    _client(request), call.cancellation, lambda wait: _answered(tool, call, given, wait)
                )
            except IngeroError as error:
                return _result(refusal(error, tool, call), is_error=True)
            except Exception as error:
                # The SDK logs it; a text of unknown origin is not for the client.
                raise UnexpectedToolError(f"{call.spelling(tool.name)} failed: an error inside the server") from error

        return answer

    async def clusters(self) -> str:
        """The text of fleet://clusters."""
        call = self.call(Listener())
        try:
            return await self._turns.run("resources", call.cancellation, lambda _: guide.clusters_text(call))
        except IngeroError as error:
            raise ResourceError(str(error)) from error

    def call(self, client: Listener) -> Call:
        """What one call of this client is given."""
        return Call(self._store, self._clock, self._spelling.for_client(client), Cancellation())


def _answered(tool: FleetTool, call: Call, given: Any, wait: Wait) -> CallToolResult:
    waited = ""
    if wait.seconds >= _NOTABLE_WAIT_S:
        waited = (
            f"waited {wait.seconds:.1f} s for its turn, because {wait.running} calls were running, before it started"
        )
    try:
        answer = tool.answer(call, given)
    except IngeroError as error:
        return _result(refusal(error, tool, call, waited), is_error=True)
    if waited and isinstance(answer, Answer):
        answer = replace(answer, notes=(*answer.notes, waited))
    finished = finish(answer, tool.table)
    if waited and answer is finished:
        finished = finished.with_note(waited)
    return _result(finished.text, structured=finished.structured)


def _result(text: str, *, structured: dict[str, Any] | None = None, is_error: bool = False) -> CallToolResult:
    content: list[ContentBlock] = [TextContent(type="text", text=text)]
    if structured is None:  # set only where there is some: null is not absence
        return CallToolResult(content=content, is_error=is_error)
    return CallToolResult(content=content, structured_content=structured, is_error=is_error)


class _RegisteredTool(Tool):
    # The SDK would validate arguments by its own rules (and ignore unknown ones); ours are taken in one place.
    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        return await self.fn(arguments, context)


def _registered(tool: FleetTool, answering: _Answering) -> Tool:
    return _RegisteredTool(
        fn=answering,
        name=tool.name,
        title=tool.title,
        description=tool.description,
        parameters=schema_of(tool.arguments),
        fn_metadata=FuncMetadata(arg_model=ArgModelBase, output_schema=schema_of(tool.table), output_model=tool.table),
        is_async=True,
        context_kwarg=None,
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def _respelling(spelling: Spelling) -> ServerMiddleware[Any]:
    """Accepts both spellings of a tool and shows each client the one it can read."""

    async def respell(ctx: _Request, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call" and isinstance((ctx.params or {}).get("name"), str):
            params = dict(ctx.params or {})
            return await call_next(replace(ctx, params=params | {"name": spelling.canonical(params["name"])}))
        result = await call_next(ctx)
        return spelling.respell(result, _listener(ctx)) if ctx.method in _NAMES_TOOLS else result

    return respell


def _listener(request: _Request) -> Listener:
    http = request.request
    return Listener(_client_name(request), http.headers.get(TOOL_NAMES_HEADER, "") if http is not None else "")


def _client_name(request: _Request) -> str | None:
    if request.method == "initialize":
        # The connection learns who its client is only after this request.
        info = (request.params or {}).get("clientInfo")
        name = info.get("name") if isinstance(info, dict) else None
        return name if isinstance(name, str) else None
    client = request.session.client_params
    return client.client_info.name if client else None


def _client(request: _Request) -> str:
    """Whom to count a call to: the session where there is one, else the address and name of the client."""
    http = request.request
    if http is None:
        # One connection, one handshake; without handshakes the name is all there is.
        handshake = request.session.client_params
        return f"{_client_name(request)} {id(handshake) if request.session.can_send_request else ''}"
    session_id = http.headers.get("mcp-session-id")
    return str(session_id or f"{http.client.host if http.client else ''} {_client_name(request)}")


def _add_resources(server: MCPServer, desk: _Desk) -> None:
    @server.resource(
        "fleet://schema",
        name="schema",
        title="Schema",
        description="Every relation and column that SQL may read.",
        mime_type="text/plain",
    )
    def schema() -> str:
        return guide.schema_text()

    @server.resource(
        "fleet://clusters",
        name="clusters",
        title="Clusters",
        description="The clusters that have data, with number of nodes and events and the range of time.",
        mime_type="text/plain",
    )
    async def clusters() -> str:
        return await desk.clusters()


def _add_prompt(server: MCPServer) -> None:
    @server.prompt(
        name="investigate",
        title="Investigate a slow cluster",
        description="Find the node and rank that hold a cluster back: which tools to call in what order.",
    )
    def investigate(
        question: Annotated[str, Field(description="What is wrong, in your words. Default: why is it slow?")] = "",
        cluster_id: Annotated[str, Field(description="Only this cluster. Default: all.")] = "",
        window: Annotated[str, Field(description="Time range, such as 14:30-14:35. Default: all.")] = "",
    ) -> str:
        return guide.investigation(question, cluster_id, window)
