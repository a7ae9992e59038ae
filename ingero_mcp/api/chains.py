"""`POST /api/v1/chains`: the causal chains of nodes, as query_fleet and `ingero explain --chains` show them."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from ingero_mcp.api.explain import Answer, endpoint_of
from ingero_mcp.errors import ConfigError
from ingero_mcp.store import Store
from ingero_mcp.tools.chains.report import AskedChains, told
from ingero_mcp.turns import Turns

_EXAMPLE: Final = '{"window": "last 15m"}'


def chains_endpoint(store: Store, turns: Turns) -> Any:
    """The endpoint over `store`: {"window", "cluster_id"} in, {"structured", "text"} out."""

    def read(asked: dict[str, Any]) -> Answer:
        try:
            given = AskedChains.model_validate(asked)
        except ValidationError:
            names = ", ".join(AskedChains.model_fields)
            raise ConfigError(f"accepted are the texts {names}; for example {_EXAMPLE}") from None
        return lambda call: told(call, given)

    return endpoint_of(store, turns, read, _EXAMPLE)
