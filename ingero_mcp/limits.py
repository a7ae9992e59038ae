"""How much the store may use. Set once, when it is opened."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Bounds of one store.

    `memory_bytes` and `threads` are DuckDB's; `temp_bytes` is what queries may spill to disk. `queued_rows` bounds
    accepted but uncommitted rows, `group_rows` the rows of one commit. A query gets `query_timeout_s` of run time and
    `result_bytes` of result, with texts of up to `cell_bytes`, and waits `wait_s` for one of `concurrent_queries`
    places. A batch is known by its key for `retry_memory_s`: as long as a producer may still send it again.
    """

    memory_bytes: int = 2048 * MIB
    threads: int = 2
    temp_bytes: int = 1024 * MIB
    queued_rows: int = 200_000
    group_rows: int = 20_000
    query_timeout_s: float = 15.0
    result_bytes: int = 16 * MIB
    cell_bytes: int = 4 * MIB
    concurrent_queries: int = 4
    wait_s: float = 10.0
    retry_memory_s: float = 24 * 3600
