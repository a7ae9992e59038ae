"""What a tool is: a name, a description, the arguments it takes and a function that answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ingero_mcp.tools.answer import Answer, Finished
from ingero_mcp.tools.call import Call


@dataclass(frozen=True, slots=True)
class FleetTool:
    """A tool as it is registered.

    `name` is canonical (dotted). `answer` blocks and is run in a worker thread; it is given the call and an
    instance of `arguments`; rows it leaves to be cut to size, anything else it finishes itself. `table` is the type
    of its structured content, `example` a good value for each parameter, to show when one was refused.
    """

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    answer: Callable[[Call, Any], Answer | Finished]
    table: type[BaseModel]
    example: Mapping[str, object]
