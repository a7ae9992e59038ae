"""`POST /api/v1/explain` and `/api/v1/compare`: what explain_stall answers, and two windows side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ingero_mcp.api.exchange import answered, asked_of, client_of, failure
from ingero_mcp.clock import now_ns
from ingero_mcp.errors import ConfigError
from ingero_mcp.store import Store
from ingero_mcp.tools.answer import Finished
from ingero_mcp.tools.arguments import schema_of, take
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.compared import Asked, compared
from ingero_mcp.tools.explain_stall import TOOL, ExplainStall, explain_stall
from ingero_mcp.turns import Cancellation, Turns

_EXAMPLE: Final = '{"window": "last 15m"}'
_COMPARE_EXAMPLE: Final = '{"before": "14:00-14:10", "after": "14:30-14:40"}'
Answer: TypeAlias = Callable[[Call], Finished]


def explain_endpoint(store: Store, turns: Turns) -> Any:
    """The endpoint over `store`: the arguments of the tool in, {"structured", "text"} out."""

    def read(asked: dict[str, Any]) -> Answer:
        given = ExplainStall(**take(asked, schema_of(ExplainStall), TOOL.example))
        return lambda call: explain_stall(call, given)

    return endpoint_of(store, turns, read, _EXAMPLE)


def compare_endpoint(store: Store, turns: Turns) -> Any:
    """`POST /api/v1/compare`: two windows of `store` in, what changed out."""

    def read(asked: dict[str, Any]) -> Answer:
        try:
            given = Asked.model_validate(asked)
        except ValidationError:
            names = ", ".join(Asked.model_fields)
            raise ConfigError(f"accepted are the texts {names}; for example {_COMPARE_EXAMPLE}") from None
        return lambda call: compared(call, call, given)

    return endpoint_of(store, turns, read, _COMPARE_EXAMPLE)


def endpoint_of(store: Store, turns: Turns, read: Callable[[dict[str, Any]], Answer], example: str) -> Any:
    """Read what is asked, wait for a turn, answer in both channels."""

    async def endpoint(request: Request) -> Response:
        try:
            asked = await asked_of(request, example)
        except ValueError as error:
            return failure(400, "bad_request", str(error))

        async def answer() -> Response:
            work = read(asked)
            call = Call(store, now_ns, cancellation=Cancellation())
            said: Finished = await turns.run(client_of(request), call.cancellation, lambda _: work(call))
            return JSONResponse({"structured": said.structured, "text": said.text})

        return await answered(request, answer)

    return endpoint
