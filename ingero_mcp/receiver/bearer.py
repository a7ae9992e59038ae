"""The bearer check in front of an HTTP app."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ingero_mcp.receiver.tokens import Tokens


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
            refusal = JSONResponse(
                {"error": "a token is needed: Authorization: Bearer <token>", "code": "unauthenticated"},
                status_code=401,
                headers={"WWW-Authenticate": 'Bearer error="invalid_token"'},
            )
            await refusal(scope, receive, send)
            return
        await self._app({**scope, "ingero.token_name": name}, receive, send)
