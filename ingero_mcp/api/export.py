"""`GET /api/v1/export`: a timeline or events as a file, sent while it is read."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ingero_mcp.api.exchange import answered, client_of
from ingero_mcp.clock import now_ns
from ingero_mcp.errors import IngeroError, StoreBusy
from ingero_mcp.exported.asked import ENDINGS, MEDIA_TYPES, Asked, asked_of
from ingero_mcp.exported.begun import Begun, begin
from ingero_mcp.store import Store
from ingero_mcp.tools.call import Call
from ingero_mcp.turns import Cancellation, Turns

ROWS_HEADER: Final = "ingero-rows"
"""How many events (of a statement: rows) the file will hold."""
MOST_AT_ONCE: Final = 2
LONGEST_SEND_S: Final = 60.0
"""A client that takes nothing for so long will not come back for the rest."""

_log = logging.getLogger(__name__)


def export_endpoint(store: Store, turns: Turns) -> Any:
    """The endpoint over `store`: `format`, and `window`, `cluster` and `job` or `sql` in, the bytes of the file out.

    Each piece is read in a turn of its own, so that a slow client keeps nobody waiting. It ends when the client goes
    away. What goes wrong after the first byte breaks the connection off: a shorter file must not pass for a whole one.
    """
    running: set[Request] = set()

    async def export(request: Request) -> Response:
        cancellation = Cancellation()
        call = Call(store, now_ns, cancellation=cancellation)
        client = client_of(request)

        begun: Begun | None = None

        def end() -> None:
            running.discard(request)
            if begun is not None:
                # Now, and not when it is collected: it may hold a piece of the events.
                with suppress(ValueError):  # its thread did not stop in time, and ends with it
                    begun.pieces.close()

        async def answer() -> Response:
            nonlocal begun
            asked = asked_of(dict(request.query_params))
            begun = await turns.run(client, cancellation, lambda _: begin(call, asked))
            read = begun.pieces
            # The first piece before the status: most of what can go wrong goes wrong by then.
            first = await turns.run(client, cancellation, lambda _: next(read, None))

            async def pieces() -> AsyncIterator[bytes]:
                piece = first
                while piece is not None:
                    yield piece
                    piece = await turns.run(client, cancellation, lambda _: next(read, None))

            return _Sending(pieces(), asked, begun.rows, end)

        if len(running) >= MOST_AT_ONCE:
            busy = StoreBusy(f"{len(running)} exports are running; ask again when one of them has ended")
            return await answered(request, _raising(busy))
        running.add(request)
        response: Response | None = None
        try:
            response = await answered(request, answer)
            return response
        finally:
            if not isinstance(response, _Sending):
                end()

    return export


class _Sending(StreamingResponse):
    """A file on its way; `ended` is called when it has arrived, or will not."""

    def __init__(self, pieces: AsyncIterator[bytes], asked: Asked, rows: int, ended: Callable[[], None]) -> None:
        name = f"ingero.{ENDINGS[asked.format]}"
        headers = {ROWS_HEADER: str(rows), "Content-Disposition": f'attachment; filename="{name}"'}
        super().__init__(pieces, headers=headers, media_type=MEDIA_TYPES[asked.format])
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            with anyio.fail_after(LONGEST_SEND_S):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except (IngeroError, TimeoutError) as error:
            # Without the end of the body the server closes the connection, and the client knows.
            _log.warning("an export was broken off: %s", str(error) or "its client took nothing")


def _raising(error: IngeroError) -> Callable[[], Any]:
    async def answer() -> Response:
        raise error

    return answer
