"""`POST /api/v1/explain`: what the tool explain_stall answers, for scripts and the command line."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ingero_mcp.api.exchange import answered, asked_of, client_of, failure
from ingero_mcp.clock import now_ns
from ingero_mcp.store import Store
from ingero_mcp.tools.answer import Finished
from ingero_mcp.tools.arguments import schema_of, take
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import TOOL, ExplainStall, explain_stall
from ingero_mcp.turns import Cancellation, Turns

_EXAMPLE: Final = '{"window": "last 15m"}'


def explain_endpoint(store: Store, turns: Turns) -> Any:
    """The endpoint over `store`: the arguments of the tool in, {"structured", "text"} out."""

    async def explain(request: Request) -> Response:
        try:
            asked = await asked_of(request, _EXAMPLE)
        except ValueError as error:
            return failure(400, "bad_request", str(error))

        async def answer() -> Response:
            given = ExplainStall(**take(asked, schema_of(ExplainStall), TOOL.example))
            call = Call(store, now_ns, cancellation=Cancellation())
            said: Finished = await turns.run(
                client_of(request), call.cancellation, lambda _: explain_stall(call, given)
            )
            return JSONResponse({"structured": said.structured, "text": said.text})

        return await answered(request, answer)

    return explain
