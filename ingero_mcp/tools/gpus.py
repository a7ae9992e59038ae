"""What GPUs nodes have, as they reported it, and what an hour of them costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.analysis.rates import Rate, rates_for
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


@dataclass(frozen=True, slots=True)
class Price:
    """What a GPU-hour costs in US dollars: `low` to `high` by `rates`, None where it is not known; of which GPUs."""

    low: float | None
    high: float | None
    rates: tuple[Rate, ...]
    model: str
    provider: str


def price_of(gpus: Iterable[Gpus], gpu_model: str = "", own_rate: float | None = None) -> Price:
    """The price of a GPU-hour on nodes with these GPUs: `own_rate` if given; `gpu_model` is that of who reports none.

    Of several models or providers the range is over all; if one of them is not in the table nothing is known.
    """
    kinds = {(one.model or gpu_model, one.provider) for one in gpus} or {(gpu_model, "")}
    if len(kinds) > 1:
        # A node that reports nothing has what the others of its job have.
        kinds = {kind for kind in kinds if kind[0]} or kinds
    model = ", ".join(sorted({model for model, _ in kinds} - {""}))
    provider = ", ".join(sorted({provider for _, provider in kinds} - {""}))
    if own_rate is not None:
        return Price(own_rate, own_rate, (), model, provider)
    fitting = [rates_for(*kind) for kind in sorted(kinds)]
    rates = tuple(dict.fromkeys(rate for own in fitting for rate in own)) if all(fitting) else ()
    prices = [rate.usd_per_gpu_hour for rate in rates]
    return Price(min(prices, default=None), max(prices, default=None), rates, model, provider)
