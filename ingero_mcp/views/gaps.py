"""What was lost before it came here."""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.views.view import View, whole

GAPS: Final = View(
    "gaps",
    "one row per time in which a probe lost events; what is missing from it proves nothing",
    (
        ("cluster_id", "cluster"),
        ("node_id", "node"),
        ("timestamp_ns", "when it was noticed, Unix ns"),
        ("start_ns", "from when on events were lost"),
        ("end_ns", "until when"),
        ("lost_events", "how many"),
        ("attrs_json", "JSON object, with their number by reason where the probe says it"),
        ("id", "node_id:event_seq, to pass back to a tool"),
    ),
    f"""
    SELECT cluster_id, node_id, timestamp_ns, {whole(semconv.GAP_START_NS)} AS start_ns,
           {whole(semconv.GAP_END_NS)} AS end_ns, {whole(semconv.LOST_EVENTS)} AS lost_events, attrs_json, id
    FROM main.events WHERE metric_name = '{semconv.PROBE_GAP}'
    """,
)
