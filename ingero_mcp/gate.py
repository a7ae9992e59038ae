"""In front of an HTTP app: who is asked for (Host, Origin) and who asks (bearer token)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ingero_mcp.tokens import Tokens


class RequireToken:
    """Answers 401 before anything is read, unless the request carries an accepted token or asks for an open path.

    The token's name is left in the scope as `ingero.token_name`.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, open_paths: Collection[str] = ()) -> None:
        self._app = app
        self._tokens = tokens
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
            return
        name = self._tokens.name_of(Request(scope).headers.get("authorization"))
        if name is None:
            refusal = _refusal(401, "unauthenticated", "a token is needed: Authorization: Bearer <token>")
            refusal.headers["WWW-Authenticate"] = 'Bearer error="invalid_token"'
            await refusal(scope, receive, send)
            return
        await self._app({**scope, "ingero.token_name": name}, receive, send)


class RequireHost:
    """Answers only under its own names, so that a page in somebody's browser cannot ask in that person's stead.

    Such a page comes with the Origin of its own site, or, where its name was made to point here (DNS rebinding), with
    a Host that is not one of ours. `hosts` are `name:port` or `name:*`. A wrong Host gets 421, a wrong Origin 403.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], open_paths: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            headers = Request(scope).headers
            host, origin = headers.get("host", ""), headers.get("origin")
            if not self._is_ours(host):
                text = f"this server does not answer as {host[:100]!r}; start it with --allowed-hosts NAME:PORT"
                await _refusal(421, "wrong_host", text)(scope, receive, send)
                return
            if origin is not None and not self._is_ours(urlsplit(origin).netloc):
                await _refusal(403, "wrong_origin", "pages of other sites may not ask")(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        name = host.lower()
        return name in self._hosts or f"{name.rpartition(':')[0] or name}:*" in self._hosts


def _refusal(status: int, code: str, text: str) -> JSONResponse:
    return JSONResponse({"error": text, "code": code}, status_code=status)
