"""What a server that starts knows already of its nodes' health: the scores of the last minute in its store."""

from __future__ import annotations

import logging
from typing import Final

from ingero_mcp.clock import now_ns
from ingero_mcp.errors import IngeroError
from ingero_mcp.semconv import HEALTH_SCORE
from ingero_mcp.store import Store
from ingero_mcp.thresholds import LIFETIME, Thresholds
from ingero_mcp.tools.call import Call

_log = logging.getLogger(__name__)
_MAX_BYTES: Final = 64 << 20


def recall_scores(store: Store, thresholds: Thresholds, push_interval_s: float) -> None:
    """Let `thresholds` learn the scores that still count. What goes wrong is logged: the next pushes bring them too."""
    since_ns = now_ns() - int(LIFETIME * push_interval_s * 1e9)
    sql = (
        "SELECT cluster_id, node_id, timestamp_ns, metric_name, value_double, attrs_json FROM events "
        f"WHERE metric_name = '{HEALTH_SCORE}' AND timestamp_ns >= {since_ns} ORDER BY timestamp_ns"
    )
    try:
        thresholds.learn(Call(store, now_ns).table(sql, _MAX_BYTES))
    except IngeroError as error:
        _log.info("health scores of before were not read: %s", error)
