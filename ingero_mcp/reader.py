"""Whoever answers queries: what tools and the analysis ask of a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import pyarrow as pa

from ingero_mcp.events import Rows
from ingero_mcp.turns import Interrupt

Query = TypeVar("Query", contravariant=True)
OnStart = Callable[[Interrupt], None]
"""Told, just before the engine starts, a function that interrupts it: for callers that may be cancelled."""


class Reader(Protocol[Query]):
    """Runs queries that passed the guard (`sqlguard.CheckedQuery`, which this layer cannot name).

    Both raise QueryTimeout, QueryError or StoreBusy. Without `timeout_s` the store's own limit holds.
    """

    def query(
        self, query: Query, *, limit: int, timeout_s: float | None = None, on_start: OnStart | None = None
    ) -> Rows:
        """At most `limit` rows, as Python values."""
        ...

    def table(
        self, query: Query, *, max_bytes: int, timeout_s: float | None = None, on_start: OnStart | None = None
    ) -> pa.Table:
        """All rows, as an Arrow table; QueryError if they need more than `max_bytes` of memory."""
        ...
