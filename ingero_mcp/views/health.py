"""The health scores of nodes."""

from __future__ import annotations

from typing import Final

from ingero_mcp.semconv import HEALTH_SCORE
from ingero_mcp.views.view import View

HEALTH: Final = View(
    "health",
    "one row per health score that a node sent",
    (
        ("cluster_id", "cluster"),
        ("node_id", "node"),
        ("job_id", "job"),
        ("rank", "global rank, where the score is that of a rank"),
        ("timestamp_ns", "Unix ns"),
        ("score", "1 is healthy, 0 is not"),
        ("id", "node_id:event_seq, to pass back to a tool"),
    ),
    "SELECT cluster_id, node_id, job_id, rank, timestamp_ns, value_double AS score, id "
    f"FROM main.events WHERE metric_name = '{HEALTH_SCORE}'",
)
