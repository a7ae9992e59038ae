"""`fleet.cluster.get_cost`: GPU-hours and what they cost, per node, hour or rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ingero_mcp import semconv
from ingero_mcp.analysis.rates import Rate, rates_for
from ingero_mcp.tools.answer import MAX_LIMIT, Answer, Table
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.scope import Scope, explain_empty
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.views.view import attribute, whole
from ingero_mcp.windows import WINDOW_FORMS, iso

NAME: Final = "fleet.cluster.get_cost"

SILENCE_NS: Final = 300_000_000_000
"""A node silent for longer than this was not there: its GPUs are not counted in between."""

_HOUR_NS: Final = 3_600_000_000_000
_MINUTE_NS: Final = 60_000_000_000
_COLUMNS: Final = (
    "gpu_model",
    "provider",
    "gpus",
    "gpu_hours",
    "usd_low",
    "usd_high",
    "rate_low",
    "rate_high",
)

# Presence: from minute to minute the events of a node reach from the first to the last; a silence of up to five minutes
# between two minutes counts as presence, a longer one does not.
_PRESENCE: Final = """
    WITH minutes AS (
      SELECT cluster_id, node_id, {rank} AS rank, timestamp_ns // {minute} AS minute,
             min(timestamp_ns) AS first_ns, max(timestamp_ns) AS last_ns
      FROM events WHERE {where} GROUP BY ALL
    ), pieces AS (
      SELECT *, first_ns - lag(last_ns) OVER (PARTITION BY cluster_id, node_id, rank ORDER BY minute) AS before_ns
      FROM minutes
    )
    SELECT cluster_id, node_id, rank, {hour} AS hour_ns,
           sum(last_ns - first_ns + CASE WHEN before_ns <= {silence} THEN before_ns ELSE 0 END) AS present_ns
    FROM pieces GROUP BY ALL ORDER BY ALL
"""
_GPUS: Final = f"""
    SELECT cluster_id, node_id, count(DISTINCT gpu_uuid) AS seen,
           max({whole(semconv.GPU_COUNT)}) FILTER (WHERE metric_name = '{semconv.NODE_INFO}') AS declared,
           max({attribute(semconv.GPU_MODEL)}) FILTER (WHERE metric_name = '{semconv.NODE_INFO}') AS model,
           max({attribute(semconv.PROVIDER)}) AS provider
    FROM events WHERE {{where}} GROUP BY ALL
"""


class GetCost(BaseModel):
    """Arguments of get_cost."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: Annotated[str | None, Field(description=f"Time range: {WINDOW_FORMS}. Default: all.")] = None
    cluster_id: Annotated[str | None, Field(description="Only this cluster. Default: all.")] = None
    by: Annotated[
        Literal["node", "hour", "rank"],
        Field(
            description="One row per node, per node and hour, or per rank (one GPU each): node (default), hour, rank."
        ),
    ] = "node"
    gpu_model: Annotated[
        str | None, Field(description="GPU model where none was reported, e.g. NVIDIA H100 80GB HBM3. Default: none.")
    ] = None
    rate_usd_per_gpu_hour: Annotated[
        float | None,
        Field(ge=0, description="Your own price of a GPU-hour in US dollars, 0 or more. Default: published prices."),
    ] = None


class CostTable(Table):
    """The structured content of get_cost."""

    gpu_hours: Annotated[float, Field(description="sum over all rows")] = 0.0
    usd_low: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    usd_high: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    unpriced_gpu_hours: Annotated[float, Field(description="of GPUs whose price is unknown, not in usd")] = 0.0


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What was reported of a node: its GPUs (0: none), their model and the provider ("" if not reported)."""

    gpus: int
    model: str
    provider: str


def get_cost(call: Call, given: GetCost) -> Answer:
    """Presence times GPUs, priced."""
    window = call.window(given.window)
    scope = Scope(cluster_id=given.cluster_id, window=window)
    columns = ("cluster_id", "node_id", *_KEYS[given.by], *_COLUMNS)
    where = scope.where()
    fleet = {
        (str(cluster), str(node)): _Fleet(max(_int(seen), _int(declared)), str(model or ""), str(provider or ""))
        for cluster, node, seen, declared, model, provider in call.read(_GPUS.format(where=where), MAX_LIMIT).rows
    }
    present = call.read(_presence(given, where), MAX_LIMIT)
    if not present.rows:
        return Answer(columns, [], MAX_LIMIT, window=window, notes=explain_empty(call, scope))
    rows = [_row(given, row, fleet[str(row[0]), str(row[1])]) for row in present.rows]
    used = {rate for row in rows for rate in row.rates}
    return Answer(
        columns,
        [row.cells for row in rows],
        MAX_LIMIT,
        truncated_by=present.truncated_by,
        window=window,
        notes=tuple(_notes(given, rows, used)),
        facts=_totals(rows),
    )


_KEYS: Final[dict[str, tuple[str, ...]]] = {"node": (), "hour": ("hour",), "rank": ("rank",)}


def _presence(given: GetCost, where: str) -> str:
    by_rank = given.by == "rank"
    return _PRESENCE.format(
        rank="rank" if by_rank else "NULL",
        minute=_MINUTE_NS,
        where=f"{where} AND rank IS NOT NULL" if by_rank else where,
        hour=f"minute * {_MINUTE_NS} // {_HOUR_NS} * {_HOUR_NS}" if given.by == "hour" else "NULL",
        silence=SILENCE_NS,
    )


@dataclass(frozen=True, slots=True)
class _Row:
    cells: tuple[object, ...]
    gpu_hours: float
    usd: tuple[float, float] | None
    rates: tuple[Rate, ...]


def _row(given: GetCost, present: Sequence[object], fleet: _Fleet) -> _Row:
    cluster_id, node_id, rank, hour_ns, present_ns = present
    gpus = 1 if given.by == "rank" else fleet.gpus
    hours = _int(present_ns) / _HOUR_NS * gpus
    model = fleet.model or given.gpu_model or ""
    rates = () if given.rate_usd_per_gpu_hour is not None else rates_for(model, fleet.provider)
    prices = [rate.usd_per_gpu_hour for rate in rates]
    if given.rate_usd_per_gpu_hour is not None:
        prices = [given.rate_usd_per_gpu_hour]
    low, high = (min(prices), max(prices)) if prices else (None, None)
    usd = (hours * low, hours * high) if low is not None and high is not None else None
    key = {"node": (), "hour": (iso(_int(hour_ns)),), "rank": (rank,)}[given.by]
    cells = (
        cluster_id,
        node_id,
        *key,
        model or "unknown",
        fleet.provider or "unknown",
        gpus or None,
        round(hours, 4) if gpus else None,
        round(usd[0], 4) if usd and gpus else None,
        round(usd[1], 4) if usd and gpus else None,
        low,
        high,
    )
    return _Row(cells, hours, usd, rates)


def _totals(rows: Sequence[_Row]) -> dict[str, object]:
    priced = [row for row in rows if row.usd is not None]
    return {
        "gpu_hours": round(sum(row.gpu_hours for row in rows), 4),
        "usd_low": round(sum(row.usd[0] for row in priced if row.usd), 4) if priced else None,
        "usd_high": round(sum(row.usd[1] for row in priced if row.usd), 4) if priced else None,
        "unpriced_gpu_hours": round(sum(row.gpu_hours for row in rows if row.usd is None), 4),
    }


def _notes(given: GetCost, rows: Sequence[_Row], used: set[Rate]) -> list[str]:
    notes = [
        "GPU-hours are the time in which a node was heard from (silences up to 5 minutes included) times its GPUs; "
        "this is what was occupied, not what was wasted"
    ]
    if any(not row.gpu_hours for row in rows) and given.by != "rank":
        notes.append("nodes without gpu_hours reported no GPU (gpu.uuid, or ingero.node.info with ingero.gpu_count)")
    if given.rate_usd_per_gpu_hour is not None:
        notes.append(f"rate: {given.rate_usd_per_gpu_hour:g} USD per GPU-hour, as given in the call")
    elif any(row.usd is None for row in rows):
        notes.append("where usd is NULL the rate is unknown: give gpu_model, or rate_usd_per_gpu_hour")
    in_order = sorted(used, key=lambda rate: (rate.gpu, rate.provider, rate.usd_per_gpu_hour))
    notes += [
        f"rate: {rate.gpu} {rate.provider or 'market'} {rate.usd_per_gpu_hour:g} USD ({rate.kind}, "
        f"as of {rate.as_of}, {rate.source})"
        for rate in in_order
    ]
    return notes


def _int(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


TOOL: Final = FleetTool(
    name=NAME,
    title="What the GPUs cost",
    description=(
        "GPU-hours and their price per node, hour or rank, from the GPUs that were observed. Prices are a range with "
        "rate, date and source; a GPU whose rate is not known is said to be unknown, not free. It prices what was "
        "occupied; it does not yet say what of it was wasted."
    ),
    arguments=GetCost,
    answer=get_cost,
    table=CostTable,
    example={
        "window": "last 1h",
        "cluster_id": "prod",
        "by": "node",
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "rate_usd_per_gpu_hour": 2.49,
    },
)
