"""The HTTP side of a server: MCP, the API, health and metrics in one Starlette app behind one gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from mcp.server import MCPServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ingero_mcp import __version__
from ingero_mcp.api.backup import backup_endpoint
from ingero_mcp.api.chains import chains_endpoint
from ingero_mcp.api.explain import compare_endpoint, explain_endpoint
from ingero_mcp.api.export import export_endpoint
from ingero_mcp.api.findings import findings_endpoint
from ingero_mcp.api.query import query_endpoint
from ingero_mcp.api.threshold import threshold_route
from ingero_mcp.gate import RequireHost, RequireToken
from ingero_mcp.store import Store
from ingero_mcp.thresholds import Thresholds
from ingero_mcp.tokens import Tokens
from ingero_mcp.turns import Turns
from ingero_mcp.watch.loop import Watch

_OPEN_PATHS: Final = frozenset({"/healthz"})
_WELCOME: Final = f"ingero {__version__}: MCP (Streamable HTTP) at /mcp and /, POST /api/v1/query, /healthz, /metrics\n"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the app is made of. `hosts` are the names under which it answers."""

    store: Store
    mcp: MCPServer
    turns: Turns
    registry: CollectorRegistry
    tokens: Tokens
    hosts: Sequence[str]
    watch: Watch
    thresholds: Thresholds


class _SpeakMcp:
    """MCP on this path; a browser's GET is told what this is."""

    def __init__(self, sessions: StreamableHTTPSessionManager) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "GET" and "text/event-stream" not in request.headers.get("accept", ""):
            await PlainTextResponse(_WELCOME)(scope, receive, send)
        else:
            await self._sessions.handle_request(scope, receive, send)


def http_app(parts: Parts) -> Starlette:
    """The app. Hosts and tokens are checked once, in front of everything but /healthz."""
    # The SDK makes the session manager together with an app of its own; ours needs it on two paths.
    parts.mcp.streamable_http_app(transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False))
    sessions = parts.mcp.session_manager

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with sessions.run():
            yield

    async def healthz(request: Request) -> Response:
        failure = parts.store.failure
        if failure is None:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failing", "error": str(failure)}, status_code=503)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(parts.registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/mcp", _SpeakMcp(sessions)),
            Route("/", _SpeakMcp(sessions)),
            Route("/api/v1/query", query_endpoint(parts.store, parts.turns), methods=["POST"]),
            Route("/api/v1/explain", explain_endpoint(parts.store, parts.turns), methods=["POST"]),
            Route("/api/v1/chains", chains_endpoint(parts.store, parts.turns), methods=["POST"]),
            Route("/api/v1/compare", compare_endpoint(parts.store, parts.turns), methods=["POST"]),
            Route("/api/v1/export", export_endpoint(parts.store, parts.turns), methods=["GET"]),
            Route(
                "/api/v1/findings",
                findings_endpoint(parts.store, parts.turns, parts.watch.news.upcoming, parts.watch.every_s),
                methods=["GET"],
            ),
            threshold_route(parts.thresholds),
            Route("/api/v1/backup", backup_endpoint(parts.store), methods=["POST"]),
            Route("/healthz", healthz),
            Route("/metrics", metrics),
        ],
        middleware=[
            Middleware(RequireHost, hosts=parts.hosts, open_paths=_OPEN_PATHS),
            Middleware(RequireToken, tokens=parts.tokens, open_paths=_OPEN_PATHS),
        ],
        lifespan=lifespan,
    )
