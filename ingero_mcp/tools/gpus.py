"""What GPUs nodes have, as they reported it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.tools.answer import MAX_LIMIT
from ingero_mcp.tools.call import Call
from ingero_mcp.views.view import attribute, whole

REPORTS: Final = f"metric_name = '{semconv.NODE_INFO}'"
"""The condition on events that they say which GPUs a node has."""

_GPUS: Final = f"""
    SELECT cluster_id, node_id, count(DISTINCT gpu_uuid) AS seen,
           max({whole(semconv.GPU_COUNT)}) FILTER (WHERE {REPORTS}) AS declared,
           arg_max({attribute(semconv.GPU_MODEL)}, timestamp_ns) FILTER (WHERE {REPORTS}) AS model,
           arg_max({attribute(semconv.PROVIDER)}, timestamp_ns) AS provider
    FROM events WHERE {{where}} GROUP BY ALL
"""


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a node: `count` 0, `model` and `provider` empty if nobody said; the model is the latest."""

    count: int
    model: str
    provider: str


def gpus_of_nodes(call: Call, where: str) -> dict[tuple[str, str], Gpus]:
    """The GPUs by (cluster, node) of the events that fulfil `where`, counted by uuid where nobody declares them."""
    rows = call.read(_GPUS.format(where=where), MAX_LIMIT).rows
    return {
        (str(cluster), str(node)): Gpus(max(_int(seen), _int(declared)), str(model or ""), str(provider or ""))
        for cluster, node, seen, declared, model, provider in rows
    }


def _int(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
