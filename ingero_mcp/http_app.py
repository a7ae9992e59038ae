"""The HTTP side of a server: MCP, the API, health and metrics in one Starlette app behind one bearer check."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ingero_mcp import __version__
from ingero_mcp.api.query import query_endpoint
from ingero_mcp.receiver.bearer import RequireToken
from ingero_mcp.receiver.tokens import Tokens
from ingero_mcp.store import Store

_OPEN_PATHS: Final = frozenset({"/healthz"})
_WELCOME: Final = f"ingero {__version__}: MCP (Streamable HTTP) at /mcp and /, POST /api/v1/query, /healthz, /metrics\n"


def http_app(
    store: Store, mcp: MCPServer, tokens: Tokens, registry: CollectorRegistry, allowed_hosts: Sequence[str]
) -> Starlette:
    """The app. `allowed_hosts` are the Host headers that are answered (`name:port` or `name:*`); others get 421."""
    # The SDK makes the session manager together with an app of its own; ours needs it on two paths.
    mcp.streamable_http_app(transport_security=_transport_security(allowed_hosts))
    sessions = mcp.session_manager

    class SpeakMcp:
        """MCP on this path; a browser's GET is told what this is."""

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive)
            if request.method == "GET" and "text/event-stream" not in request.headers.get("accept", ""):
                await PlainTextResponse(_WELCOME)(scope, receive, send)
            else:
                await sessions.handle_request(scope, receive, send)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with sessions.run():
            yield

    async def healthz(request: Request) -> Response:
        failure = store.failure
        if failure is None:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "failing", "error": str(failure)}, status_code=503)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/mcp", SpeakMcp()),
            Route("/", SpeakMcp()),
            Route("/api/v1/query", query_endpoint(store), methods=["POST"]),
            Route("/healthz", healthz),
            Route("/metrics", metrics),
        ],
        middleware=[Middleware(RequireToken, tokens=tokens, open_paths=_OPEN_PATHS)],
        lifespan=lifespan,
    )


def _transport_security(allowed_hosts: Sequence[str]) -> TransportSecuritySettings:
    schemes = ("http", "https")
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=list(allowed_hosts),
        allowed_origins=[f"{scheme}://{host}" for scheme in schemes for host in allowed_hosts],
    )
