"""How tools are spelled for a client: dotted, or with underscores where dots are refused.

The canonical names are dotted. One spelling is listed, both are accepted in calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

ToolNames = Literal["auto", "dotted", "underscore"]

# One dot in one name makes these refuse a whole list of tools. What they send as clientInfo.name: claude-ai
# (Claude Desktop and claude.ai, also through mcp-remote), cursor-vscode, Visual Studio Code,
# github-copilot-developer.
STRICT_CLIENTS: Final = (
    "claude-ai",
    "claude.ai",
    "claude desktop",
    "cursor",
    "visual studio code",
    "vscode",
    "copilot",
)
"""Parts of the names of clients that are shown underscores in the mode `auto`."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is shown the names: the client by the name it gives, and the mode it asked for itself ("" for none)."""

    name: str | None = None
    asked: str = ""


class Spelling:
    """Translates between canonical names and those of one mode."""

    def __init__(self, canonical: Iterable[str], mode: ToolNames) -> None:
        self._mode = mode
        self._underscored = {name: name.replace(".", "_") for name in canonical}
        self._canonical = {alias: name for name, alias in self._underscored.items()}
        self._pattern = re.compile("|".join(re.escape(name) for name in sorted(self._underscored, key=len)[::-1]))

    def canonical(self, name: str) -> str:
        """The canonical name of a tool called by either spelling; other names are returned as they are."""
        return self._canonical.get(name, name)

    def for_client(self, client: Listener) -> Callable[[str], str]:
        """How this client is shown the tools: maps a canonical name to the listed one."""
        if not self._is_underscored(client):
            return str
        return lambda name: self._underscored.get(name, name)

    def respell(self, value: Any, client: Listener) -> Any:
        """JSON data of ours (listings, instructions, prompts) with tool names as this client is shown them."""
        if not self._is_underscored(client):
            return value
        return self._respelled(value)

    def _is_underscored(self, client: Listener) -> bool:
        mode = client.asked if client.asked in ("dotted", "underscore") else self._mode
        if mode != "auto":
            return mode == "underscore"
        name = (client.name or "").casefold()
        return any(part in name for part in STRICT_CLIENTS)

    def _respelled(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(lambda match: self._underscored[match[0]], value)
        if isinstance(value, list):
            return [self._respelled(item) for item in value]
        if isinstance(value, dict):
            return {key: self._respelled(item) for key, item in value.items()}
        return value
