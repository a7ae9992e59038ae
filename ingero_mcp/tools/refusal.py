"""What a model is told when a call cannot be answered: what was wrong, what is accepted, what to call next.

Everything is in the text: some clients drop the structured content of an error.
"""

from __future__ import annotations

from typing import Final

from ingero_mcp.cells import escaped
from ingero_mcp.errors import ConfigError, GuardError, IngeroError, QueryError, QueryTimeout, StoreBusy
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.views import relations

MOST_CHARS: Final = 6000
"""Longer error texts are clipped by clients; ours end before that."""

_SCHEMA: Final = "columns of every relation: resource fleet://schema"


def refusal(error: IngeroError, tool: FleetTool, call: Call, note: str = "") -> str:
    """The whole text for the model; `note` is about the call as such."""
    lines = [_one_line_each(str(error)), *_hints(error)]
    lines += [f"note: {note}"] if note else []
    lines.append(f"example: {call.next_call(tool.name, _shown(error, tool))}")
    text = "\n".join(lines)
    return text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + " [cut]"


def _hints(error: IngeroError) -> list[str]:
    if isinstance(error, GuardError):
        names = ", ".join(relations())
        over = "these relations" if names in str(error) else names
        return [f"accepted: one SELECT (CTEs allowed) over {over}, without schema or file names"]
    if isinstance(error, QueryTimeout):
        return ["the query did start; it was too slow, so asking the same again does not help"]
    if isinstance(error, QueryError):
        return [_SCHEMA]
    if isinstance(error, StoreBusy):
        return ["nothing is wrong with the call: send the same again in a few seconds, and fewer at a time"]
    return []


def _shown(error: IngeroError, tool: FleetTool) -> dict[str, object]:
    # An argument was wrong: the message has shown that one, a small whole call is the clearest thing to add.
    required = tool.arguments.model_json_schema().get("required", [])
    if required or not isinstance(error, ConfigError):
        return {name: tool.example[name] for name in required}
    return {"window": "last 15m"} if "window" in tool.example else {}


def _one_line_each(message: str) -> str:
    # The engine quotes recorded text in its messages; its own line breaks stay.
    return "\n".join(escaped(line) for line in message.splitlines())
