"""`GET /api/v1/findings`: what the watch has found; with `wait_s` the answer comes when there is something new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ingero_mcp.api.exchange import answered, client_of, failure
from ingero_mcp.clock import now_ns
from ingero_mcp.notice import Notice, as_json
from ingero_mcp.store import Store
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.kept_stalls import kept_stalls
from ingero_mcp.turns import Cancellation, Turns

MOST: Final = 1000
LONGEST_WAIT_S: Final = 60.0
_DEFAULT: Final = 100
_EXAMPLE: Final = "/api/v1/findings?state=open&limit=10, /api/v1/findings?after=0&wait_s=30"
_KNOWN: Final = frozenset({"state", "after", "wait_s", "limit"})

Upcoming: TypeAlias = Callable[[], anyio.Event]
"""Gives what is set when the watch tells something next."""


def findings_endpoint(store: Store, turns: Turns, upcoming: Upcoming, every_s: float) -> Any:
    """The endpoint. `state`: open or all; `after`: the `next` of the answer before; `wait_s`: 0 to 60; `limit`.

    The answer: {"findings": [...], "next": cursor, "watch_every_s": 5}; without `after` the latest come first.
    """

    async def findings(request: Request) -> Response:
        try:
            only_open, after_ns, wait_s, limit = _asked(dict(request.query_params))
        except ValueError as error:
            return failure(400, "bad_request", f"{error}; for example {_EXAMPLE}")

        async def answer() -> Response:
            news = upcoming()
            found = await read()
            if not found and after_ns is not None:
                with anyio.move_on_after(wait_s):
                    await news.wait()
                found = await read()
            newest = max((one.updated_ns for one in found), default=after_ns or 0)
            shown = [as_json(one) for one in found]
            return JSONResponse({"findings": shown, "next": str(newest), "watch_every_s": every_s})

        async def read() -> list[Notice]:
            call = Call(store, now_ns, cancellation=Cancellation())
            return await turns.run(
                client_of(request),
                call.cancellation,
                lambda _: kept_stalls(call, after_ns=after_ns, only_open=only_open, most=limit),
            )

        return await answered(request, answer)

    return findings


def _asked(given: dict[str, str]) -> tuple[bool, int | None, float, int]:
    if unknown := sorted(given.keys() - _KNOWN):
        raise ValueError(f"{unknown[0][:40]!a} is not known; accepted are {', '.join(sorted(_KNOWN))}")
    state = given.get("state", "all")
    if state not in ("open", "all"):
        raise ValueError("state must be open or all")
    after = given.get("after")
    if after is not None and not (after.isascii() and after.isdigit() and len(after) <= 19 and int(after) < 2**63):
        raise ValueError("after must be the next of an answer before, or 0")
    return state == "open", None if after is None else int(after), _wait_s(given), _limit(given)


def _wait_s(given: dict[str, str]) -> float:
    text = given.get("wait_s", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 3 or int(text) > LONGEST_WAIT_S:
        raise ValueError(f"wait_s must be a whole number from 0 to {LONGEST_WAIT_S:g}")
    return float(text)


def _limit(given: dict[str, str]) -> int:
    text = given.get("limit", str(_DEFAULT))
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= MOST:
        raise ValueError(f"limit must be a whole number from 1 to {MOST}")
    return int(text)
