"""`fleet.cluster.get_cost`: GPU-hours and what they cost: lost, by cause; or occupied, per node, hour or rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ingero_mcp.analysis.rates import Rate
from ingero_mcp.cells import escaped
from ingero_mcp.tools.answer import MAX_LIMIT, Answer, Table
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.cost_by_cause import CAUSE_COLUMNS, CAUSE_NOTES, CauseRow, rows_by_cause
from ingero_mcp.tools.gpus import Gpus, gpus_of_nodes, price_of
from ingero_mcp.tools.jobs import MAX_JOBS
from ingero_mcp.tools.priced import price_notes, totals
from ingero_mcp.tools.scope import Scope, explain_empty
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.windows import WINDOW_FORMS, Window, iso

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


class GetCost(BaseModel):
    """Arguments of get_cost."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: Annotated[str | None, Field(description=f"Time range: {WINDOW_FORMS}. Default: all.")] = None
    cluster_id: Annotated[str | None, Field(description="Only this cluster. Default: all.")] = None
    by: Annotated[
        Literal["cause", "node", "rank", "hour"],
        Field(
            description="cause: what was lost, one row per finding of the jobs in the window. What was occupied: node "
            "(default), rank (one GPU each), hour (per node and hour)."
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

    gpu_hours: Annotated[float, Field(description="sum over all rows: by cause those lost, else those occupied")] = 0.0
    usd_low: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    usd_high: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    unpriced_gpu_hours: Annotated[float, Field(description="of GPUs whose price is unknown, not in usd")] = 0.0


def get_cost(call: Call, given: GetCost) -> Answer:
    """What was lost, or presence times GPUs, priced."""
    window = call.window(given.window)
    if given.by == "cause":
        return _by_cause(call, given, window)
    scope = Scope(cluster_id=given.cluster_id, window=window)
    columns = ("cluster_id", "node_id", *_KEYS[given.by], *_COLUMNS)
    where = scope.where()
    fleet = gpus_of_nodes(call, where)
    present = call.read(_presence(given, where), MAX_LIMIT)
    if not present.rows:
        return Answer(columns, [], MAX_LIMIT, window=window, notes=explain_empty(call, scope))
    rows = [_row(given, row, fleet[str(row[0]), str(row[1])]) for row in present.rows]
    return Answer(
        columns,
        [row.cells for row in rows],
        MAX_LIMIT,
        truncated_by=present.truncated_by,
        window=window,
        notes=tuple(_notes(given, rows)),
        facts=totals(rows),
    )


_KEYS: Final[dict[str, tuple[str, ...]]] = {"node": (), "hour": ("hour",), "rank": ("rank",)}


def _by_cause(call: Call, given: GetCost, window: Window | None) -> Answer:
    rows: list[CauseRow] = []
    is_all = True
    if window is not None:
        rows, is_all = rows_by_cause(call, window, given.cluster_id, given.gpu_model or "", given.rate_usd_per_gpu_hour)
    if not rows:
        why = explain_empty(call, Scope(cluster_id=given.cluster_id, window=window))
        return Answer(CAUSE_COLUMNS, [], MAX_LIMIT, window=window, notes=(_NO_JOB, *why))
    notes = [*CAUSE_NOTES]
    notes += [] if is_all else [f"only the {MAX_JOBS} jobs with most events were looked at"]
    if any(row.hours is None for row in rows):
        notes.append("where gpu_hours_lost is NULL it is not known, which is not 0")
    return Answer(
        CAUSE_COLUMNS,
        [row.cells for row in rows],
        MAX_LIMIT,
        window=window,
        notes=(*map(escaped, notes), *price_notes(rows, given.rate_usd_per_gpu_hour)),
        facts=totals(rows),
    )


_NO_JOB: Final = "no job of this window has collectives or computing to judge by; by node says what was occupied"


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
    hours: float
    usd: tuple[float, float] | None
    rates: tuple[Rate, ...]


def _row(given: GetCost, present: Sequence[object], fleet: Gpus) -> _Row:
    cluster_id, node_id, rank, hour_ns, present_ns = present
    gpus = 1 if given.by == "rank" else fleet.count
    hours = _int(present_ns) / _HOUR_NS * gpus
    price = price_of([fleet], given.gpu_model or "", given.rate_usd_per_gpu_hour)
    low, high = price.low, price.high
    usd = (hours * low, hours * high) if low is not None and high is not None else None
    key = {"node": (), "hour": (iso(_int(hour_ns)),), "rank": (rank,)}[given.by]
    cells = (
        cluster_id,
        node_id,
        *key,
        price.model or "unknown",
        price.provider or "unknown",
        gpus or None,
        round(hours, 4) if gpus else None,
        round(usd[0], 4) if usd and gpus else None,
        round(usd[1], 4) if usd and gpus else None,
        low,
        high,
    )
    return _Row(cells, hours, usd, price.rates)


def _notes(given: GetCost, rows: Sequence[_Row]) -> list[str]:
    notes = [
        "GPU-hours are the time in which a node was heard from (silences up to 5 minutes included) times its GPUs; "
        "this is what was occupied, not what was wasted (by: cause)"
    ]
    if any(not row.hours for row in rows) and given.by != "rank":
        notes.append("nodes without gpu_hours reported no GPU (gpu.uuid, or ingero.node.info with ingero.gpu_count)")
    return notes + price_notes(rows, given.rate_usd_per_gpu_hour)


def _int(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


TOOL: Final = FleetTool(
    name=NAME,
    title="What the GPUs cost",
    description=(
        "GPU-hours and their price. by: cause says what was lost: per finding of the jobs in the window (see "
        "explain_stall) the wall time it cost times all GPUs of the job, how that was worked out, and whether it is an "
        "upper bound; a healthy job lost 0. by: node, rank or hour price what was occupied. Prices are a range with "
        "rate, date and source; a GPU whose rate is not known is said to be unknown, not free."
    ),
    arguments=GetCost,
    answer=get_cost,
    table=CostTable,
    example={
        "window": "last 1h",
        "cluster_id": "prod",
        "by": "cause",
        "gpu_model": "NVIDIA H100 80GB HBM3",
        "rate_usd_per_gpu_hour": 2.49,
    },
)
