"""`POST /api/v1/query`: the same guarded SQL as the tools, for scripts, the command line and other servers."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ingero_mcp.api.exchange import answered, asked_of, client_of, failure
from ingero_mcp.cells import structured
from ingero_mcp.events import Rows
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store
from ingero_mcp.turns import Cancellation, Turns

DEFAULT_ROWS: Final = 1000
MAX_ROWS: Final = 10_000
_EXAMPLE: Final = '{"sql": "SELECT count(*) FROM events", "limit": 100}'


def query_endpoint(store: Store, turns: Turns) -> Any:
    """The endpoint over `store`: {"sql", "limit"} in, {"columns", "types", "rows", "truncated"} out.

    Queries wait for their turn beside those of MCP clients, and stop when the one who asked goes away.
    """

    async def query(request: Request) -> Response:
        try:
            sql, limit = _parse(await asked_of(request, _EXAMPLE))
        except ValueError as error:
            return failure(400, "bad_request", str(error))

        async def answer() -> Response:
            cancellation = Cancellation()
            rows = await turns.run(client_of(request), cancellation, lambda _: _run(store, cancellation, sql, limit))
            return _shown(rows)

        return await answered(request, answer)

    return query


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


def _parse(asked: dict[str, Any]) -> tuple[str, int]:
    if not isinstance(asked.get("sql"), str):
        raise ValueError(f"sql is missing; send {_EXAMPLE}")
    limit = asked.get("limit", DEFAULT_ROWS)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_ROWS:
        raise ValueError(f"limit must be a whole number from 1 to {MAX_ROWS}")
    return asked["sql"], limit
