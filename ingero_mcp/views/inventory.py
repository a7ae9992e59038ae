"""What is there: nodes, clusters and jobs."""

from __future__ import annotations

from typing import Final

from ingero_mcp.views.view import View

INVENTORY: Final = (
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
    View(
        "jobs",
        "one row per training job",
        (
            ("cluster_id", "cluster"),
            ("job_id", "job"),
            ("world_size", "number of its ranks; NULL: nobody said"),
            ("ranks_seen", "number of distinct ranks seen"),
            ("nodes", "number of nodes"),
            ("events", "number of events"),
            ("first_ns", "time of the oldest event, Unix ns"),
            ("last_ns", "time of the newest event, Unix ns"),
        ),
        """
        SELECT cluster_id, job_id, max(world_size) AS world_size, count(DISTINCT rank) AS ranks_seen,
               count(DISTINCT node_id) AS nodes, count(*) AS events, min(timestamp_ns) AS first_ns,
               max(timestamp_ns) AS last_ns
        FROM main.events WHERE job_id IS NOT NULL GROUP BY ALL
        """,
    ),
)
