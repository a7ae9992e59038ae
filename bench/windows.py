"""What a window of a large store costs: ten million events, and a tenth or a thousandth of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import large
from bench.figure import Figure, measure, seconds
from ingero_mcp.limits import StoreLimits
from ingero_mcp.sqlguard import CheckedQuery, check
from ingero_mcp.store import Store, open_store

_REPETITIONS = 3
_MOST_BYTES = 1 << 30
_CALLS = "SELECT * EXCLUDE (comm_rank, seq_origin, count, datatype, unfinished) FROM collective_calls"
_LATE = (
    "SELECT rank, count(*), max(lateness_ns), sum(wait_ns), min(ranks_seen) FROM collectives WHERE {where} GROUP BY 1"
)


def figures() -> Iterator[Figure]:
    """Seconds per question."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.duckdb"
        made = seconds(partial(large.make, path))
        yield Figure(f"making a store of {large.EVENTS:,} events", made, "s", made, made)
        with open_store(path, limits=StoreLimits(query_timeout_s=60)) as store:
            for events in (10_000, 1_000_000):
                yield from _window(store, events)


def _window(store: Store, events: int) -> Iterator[Figure]:
    start_ns = large.START_NS + large.EVENTS // 2 * large.NS_PER_EVENT
    where = f"enter_ns >= {start_ns} AND enter_ns < {start_ns + events * large.NS_PER_EVENT}"
    late, calls = check(_LATE.format(where=where)), check(f"{_CALLS} WHERE {where}")
    told = f"in a window of {events:,} events"
    yield measure(f"collectives, lateness by rank {told}", "s", partial(_asked, store, late), _REPETITIONS)
    yield measure(f"collective_calls as a table {told}", "s", partial(_read, store, calls), _REPETITIONS)


def _asked(store: Store, query: CheckedQuery) -> float:
    return seconds(lambda: store.query(query, limit=1000))


def _read(store: Store, query: CheckedQuery) -> float:
    return seconds(lambda: store.table(query, max_bytes=_MOST_BYTES))
