"""One call of a tool: what it may read, what time it is, and how its client spells the names of tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from ingero_mcp import windows
from ingero_mcp.clock import WallClock
from ingero_mcp.events import Rows
from ingero_mcp.reader import Reader as AnyReader
from ingero_mcp.sqlguard import CheckedQuery, check
from ingero_mcp.turns import Cancellation

Reader: TypeAlias = AnyReader[CheckedQuery]


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool is given besides its arguments.

    `clock` is None for a file: relative windows then end at its newest event. `spelling` maps a canonical
    tool name to the one this client is shown.
    """

    reader: Reader
    clock: WallClock | None
    spelling: Callable[[str], str] = str
    cancellation: Cancellation = field(default_factory=Cancellation)

    def read(self, sql: str | CheckedQuery, limit: int = 1) -> Rows:
        """Run a query of our own; it passes the guard like any other."""
        query = check(sql) if isinstance(sql, str) else sql
        self.cancellation.require_wanted()
        try:
            return self.reader.query(query, limit=limit, on_start=self.cancellation.watch)
        finally:
            self.cancellation.forget()

    def table(self, sql: str | CheckedQuery, max_bytes: int) -> pa.Table:
        """All rows of a query of our own, as Arrow; QueryError if they need more than `max_bytes`."""
        query = check(sql) if isinstance(sql, str) else sql
        self.cancellation.require_wanted()
        try:
            return self.reader.table(query, max_bytes=max_bytes, on_start=self.cancellation.watch)
        finally:
            self.cancellation.forget()

    def window(self, text: str | None) -> windows.Window | None:
        """The window meant by `text`, resolved; None if the database is empty and no window was given."""
        first, last = self.read("SELECT min(timestamp_ns), max(timestamp_ns) FROM events").rows[0]
        newest = last + 1 if isinstance(last, int) else 0
        window = windows.parse(text, self.clock() if self.clock else newest)
        if not window.is_all:
            return window
        if not isinstance(first, int):
            return None
        return windows.Window(first, newest, "all")

    def next_call(self, tool: str, arguments: dict[str, object]) -> str:
        """A literal call of a tool, spelled for this client; arguments that are None are left out."""
        given = {name: value for name, value in arguments.items() if value is not None}
        return f"{self.spelling(tool)} {json.dumps(given, ensure_ascii=True)}"
