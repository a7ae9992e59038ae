"""The relations that SQL may read: `events` and the views over it. Public API, with documented columns.

The store creates them, the guard allows them and nothing else, docs/schema.md lists them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingero_mcp.events import COLUMNS


@dataclass(frozen=True, slots=True)
class View:
    """A public view; `columns` are (name, doc) pairs in order, `sql` is its definition over `events`."""

    name: str
    doc: str
    columns: tuple[tuple[str, str], ...]
    sql: str


VIEWS: tuple[View, ...] = (
    View(
        "nodes",
        "one row per node with what it has sent",
        (
            ("cluster_id", "cluster"),
            ("node_id", "node"),
            ("events", "number of events"),
            ("ranks", "number of distinct ranks seen"),
            ("first_ns", "time of the oldest event, Unix ns"),
            ("last_ns", "time of the newest event, Unix ns"),
        ),
        """
        SELECT cluster_id, node_id, count(*) AS events, count(DISTINCT rank) AS ranks,
               min(timestamp_ns) AS first_ns, max(timestamp_ns) AS last_ns
        FROM main.events GROUP BY ALL
        """,
    ),
    View(
        "clusters",
        "one row per cluster with what it has sent",
        (
            ("cluster_id", "cluster"),
            ("nodes", "number of nodes"),
            ("events", "number of events"),
            ("first_ns", "time of the oldest event, Unix ns"),
            ("last_ns", "time of the newest event, Unix ns"),
        ),
        """
        SELECT cluster_id, count(DISTINCT node_id) AS nodes, count(*) AS events,
               min(timestamp_ns) AS first_ns, max(timestamp_ns) AS last_ns
        FROM main.events GROUP BY ALL
        """,
    ),
)


def relations() -> dict[str, tuple[str, ...]]:
    """Every relation that SQL may read, with its columns in order."""
    public = {"events": tuple(column.name for column in COLUMNS)}
    return public | {view.name: tuple(name for name, _ in view.columns) for view in VIEWS}
