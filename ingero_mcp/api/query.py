"""`POST /api/v1/query`: the same guarded SQL as the tools, for scripts, the command line and other servers."""

from __future__ import annotations

import json
from typing import Any, Final

from anyio import CancelScope, create_task_group
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ingero_mcp.cells import structured
from ingero_mcp.errors import GuardError, IngeroError, QueryError, QueryTimeout, StoreBusy
from ingero_mcp.events import Rows
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store
from ingero_mcp.turns import Cancellation, Turns

DEFAULT_ROWS: Final = 1000
MAX_ROWS: Final = 10_000
_MAX_BODY_BYTES: Final = 1 << 20
_STATUS: Final[tuple[tuple[type[IngeroError], int, str], ...]] = (
    (GuardError, 400, "refused_sql"),
    (QueryTimeout, 408, "query_timeout"),
    (StoreBusy, 503, "busy"),
    (QueryError, 400, "query_failed"),
)


def query_endpoint(store: Store, turns: Turns) -> Any:
    """The endpoint over `store`: {"sql", "limit"} in, {"columns", "types", "rows", "truncated"} out.

    Queries wait for their turn beside those of MCP clients, and stop when the one who asked goes away.
    """

    async def query(request: Request) -> Response:
        try:
            sql, limit = _parse(request, await _body(request))
        except ValueError as error:
            return _failure(400, "bad_request", str(error))
        client = f"api {request.client.host if request.client else ''}"
        answer: list[Response] = []
        async with create_task_group() as tasks:
            tasks.start_soon(_leave_with, request, tasks.cancel_scope)
            cancellation = Cancellation()
            try:
                rows = await turns.run(client, cancellation, lambda _: _run(store, cancellation, sql, limit))
                answer.append(_shown(rows))
            except IngeroError as error:
                answer.append(_translate(error))
            tasks.cancel_scope.cancel()
        return answer[0] if answer else Response(status_code=499)

    return query


async def _leave_with(request: Request, scope: CancelScope) -> None:
    """Give up when the one who asked is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        continue
    scope.cancel()


def _run(store: Store, cancellation: Cancellation, sql: str, limit: int) -> Rows:
    query = check(sql)
    cancellation.require_wanted()
    try:
        return store.query(query, limit=limit, on_start=cancellation.watch)
    finally:
        cancellation.forget()


def _shown(rows: Rows) -> Response:
    cells = [[structured(value) for value in row] for row in rows.rows]
    return JSONResponse({"columns": rows.columns, "types": rows.types, "rows": cells, "truncated": rows.truncated})


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise ValueError(f"the body is larger than {_MAX_BODY_BYTES} bytes")
    return body


def _parse(request: Request, body: bytes) -> tuple[str, int]:
    example = '{"sql": "SELECT count(*) FROM events", "limit": 100}'
    # What a page of another site can send without asking first is never JSON.
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise ValueError(f"send Content-Type: application/json and {example}")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError(f"the body is not JSON; send {example}") from None
    if not isinstance(asked, dict) or not isinstance(asked.get("sql"), str):
        raise ValueError(f"sql is missing; send {example}")
    limit = asked.get("limit", DEFAULT_ROWS)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_ROWS:
        raise ValueError(f"limit must be a whole number from 1 to {MAX_ROWS}")
    return asked["sql"], limit


def _translate(error: IngeroError) -> Response:
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return _failure(status, code, str(error))
    return _failure(503, "unavailable", str(error))


def _failure(status: int, code: str, text: str) -> Response:
    headers = {"Retry-After": "5"} if status == 503 else None
    return JSONResponse({"error": text, "code": code}, status_code=status, headers=headers)
