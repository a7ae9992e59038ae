"""Clocks of nodes: what is stored of them, and how a time on one is corrected."""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.views.view import PRIVATE, View

CLOCKS: Final = View(
    "clocks",
    "one row per reading of a node's clock: a time on it minus offset_ns is a time on the reference",
    (
        ("cluster_id", "cluster"),
        ("node_id", "node"),
        ("rank", "rank whose clock it is, where nodes are not known; NULL: the node's"),
        ("at_ns", "when, Unix ns on that clock"),
        ("offset_ns", "how far it was ahead of the reference"),
        ("bound_ns", "the offset is right within this; NULL: nobody can say"),
        ("method", "how it was found"),
        ("reference", "the clock it was compared with"),
    ),
    f"SELECT cluster_id, node_id, rank, at_ns, offset_ns, bound_ns, method, reference FROM {PRIVATE}.node_clocks",
)

CLOCK_SPANS: Final = f"{PRIVATE}.clock_spans"
"""From when to when a reading holds: from its own time to that of the next; the first one from the beginning, the last
one to the end. Short spans are listed once for each BUCKET_NS that they touch, so that finding the one of a moment does
not mean trying all of them; long ones have no bucket. A rank is -1 where the clock is the node's."""

BUCKET_NS: Final = 600_000_000_000


def with_clock(calls: str) -> str:
    """SQL: rows of `calls` with `offset_ns` (0 where nothing is known) and `clock_bound_ns` of their `timestamp_ns`."""
    # ASOF JOIN is made for this, but sorts all the events first, whatever is asked; so does a window function.
    node, rank = f"coalesce(calls.node_id, '{semconv.UNKNOWN}')", "coalesce(calls.rank, -1)"
    same = (
        "{0}.cluster_id = calls.cluster_id AND {0}.node_id = " + node + " AND {0}.rank = "
        f"CASE WHEN {node} = '{semconv.UNKNOWN}' THEN {rank} ELSE -1 END "
        "AND calls.timestamp_ns >= {0}.from_ns AND calls.timestamp_ns < {0}.to_ns"
    )
    return f"""
        SELECT calls.*, coalesce(long.offset_ns, short.offset_ns, 0) AS offset_ns,
               coalesce(long.bound_ns, short.bound_ns) AS clock_bound_ns
        FROM ({calls}) AS calls
        LEFT JOIN (SELECT * FROM {CLOCK_SPANS} WHERE bucket IS NULL) AS long ON {same.format("long")}
        LEFT JOIN (SELECT * FROM {CLOCK_SPANS} WHERE bucket IS NOT NULL) AS short ON {same.format("short")}
            AND short.bucket = calls.timestamp_ns // {BUCKET_NS}
        """
