"""One request and its answer: the body as JSON, errors as {error, code}, an end when the one who asked goes away."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from anyio import CancelScope, create_task_group
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ingero_mcp.errors import ConfigError, GuardError, IngeroError, QueryError, QueryTimeout, StoreBusy

_MAX_BODY_BYTES: Final = 1 << 20
_STATUS: Final[tuple[tuple[type[IngeroError], int, str], ...]] = (
    (GuardError, 400, "refused_sql"),
    (QueryTimeout, 408, "query_timeout"),
    (StoreBusy, 503, "busy"),
    (QueryError, 400, "query_failed"),
    (ConfigError, 400, "bad_request"),
)


def client_of(request: Request) -> str:
    """Whom to count a request to."""
    return f"api {request.client.host if request.client else ''}"


async def asked_of(request: Request, example: str) -> dict[str, Any]:
    """The JSON object in the body; ValueError with the example for anything else."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise ValueError(f"the body is larger than {_MAX_BODY_BYTES} bytes")
    # What a page of another site can send without asking first is never JSON.
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise ValueError(f"send Content-Type: application/json and {example}")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(f"the body is not JSON; send {example}") from None
    if not isinstance(asked, dict):
        raise ValueError(f"the body is not a JSON object; send {example}")
    return asked


async def answered(request: Request, answer: Callable[[], Awaitable[Response]]) -> Response:
    """What `answer` gives, or its error as a response; it is cancelled when the one who asked is gone."""
    given: list[Response] = []
    async with create_task_group() as tasks:
        tasks.start_soon(_leave_with, request, tasks.cancel_scope)
        try:
            given.append(await answer())
        except IngeroError as error:
            given.append(_translated(error))
        tasks.cancel_scope.cancel()
    return given[0] if given else Response(status_code=499)


async def _leave_with(request: Request, scope: CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


def _translated(error: IngeroError) -> Response:
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return failure(status, code, str(error))
    return failure(503, "unavailable", str(error))


def failure(status: int, code: str, text: str) -> Response:
    """An error as a response."""
    headers = {"Retry-After": "5"} if status == 503 else None
    return JSONResponse({"error": text, "code": code}, status_code=status, headers=headers)
