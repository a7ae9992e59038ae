"""`query_fleet`: one question to the fleet: causal chains, operations, an overview, or SQL.

This server answers for what it holds. The shape of the answer, `node` first and warnings beside the rows, is that of
several servers asked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from ingero_mcp.analysis.severity import SEVERITIES
from ingero_mcp.cells import escaped
from ingero_mcp.errors import ConfigError
from ingero_mcp.tools import run_analysis
from ingero_mcp.tools.answer import DEFAULT_LIMIT, MAX_LIMIT, Answer, Table
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.found import Chains, ShownChain, chains
from ingero_mcp.tools.fleet_ops import COLUMNS as OPS_COLUMNS
from ingero_mcp.tools.fleet_ops import fleet_ops
from ingero_mcp.tools.scope import Scope, explain_empty
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.windows import WINDOW_FORMS, Window, iso

NAME: Final = "query_fleet"
THIS_SERVER: Final = "local"
"""What an answer calls the server that gives it, where rows do not name a node."""

_EXAMPLE_SQL: Final = "SELECT node_id, count(*) AS events FROM events GROUP BY node_id"
_FACTS: Final = (
    "node", "severity", "kind", "origin", "summary", "root_cause", "start", "end", "op", "p99_us", "p50_us",
    "tail_ratio", "usual_us", "stored_as", "checked", "count", "recommendations", "timeline", "evidence", "job_id",
    "rank", "cause", "confidence", "chain_id", "cluster_id",
)  # fmt: skip
_ALWAYS: Final = frozenset(("node", "severity", "kind", "origin", "summary", "root_cause", "start", "end", "chain_id"))
_LONG: Final = frozenset(("timeline", "evidence"))
_MOST_LONG: Final = 8  # chains that are shown with what is long


class QueryFleet(BaseModel):
    """Arguments of query_fleet."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Annotated[
        Literal["chains", "ops", "overview", "sql"],
        Field(
            description="chains: causal chains, worst first. ops: operations per node with true counts and p50, p95, "
            "p99. overview: nodes, events, chains by severity, jobs. sql: needs query. Default: chains."
        ),
    ] = "chains"
    query: Annotated[
        str | None,
        Field(description=f"For action sql: one SELECT, DuckDB dialect, such as {_EXAMPLE_SQL}. Default: none."),
    ] = None
    sql: Annotated[str | None, Field(description="The same as query, which wins. Default: none.")] = None
    since: Annotated[
        str | None, Field(description=f"Time range, such as 15m or 2d: {WINDOW_FORMS}. Default: all the data.")
    ] = None
    limit: Annotated[
        int, Field(ge=1, le=MAX_LIMIT, description=f"Most rows: 1 to {MAX_LIMIT}, default {DEFAULT_LIMIT}.")
    ] = DEFAULT_LIMIT


class FleetTable(Table):
    """The structured content of query_fleet."""

    action: str
    warnings: Annotated[list[str], Field(description="what to know before trusting the rows")]


def query_fleet(call: Call, given: QueryFleet) -> Answer:
    """Answer for the nodes of this server."""
    warnings = []
    asked = given.query or given.sql
    if given.action != "sql" and asked:
        warnings.append(f"query is only read with action sql; this is action {given.action}")
    if given.action == "sql" and given.since:
        warnings.append("since does not narrow SQL; put a condition on timestamp_ns into it")
    answer = _ACTIONS[given.action](call, given)
    return replace(answer, facts={"action": given.action, "warnings": warnings})


def _chains(call: Call, given: QueryFleet) -> Answer:
    found = chains(call, given.since)
    columns = _columns(found.shown)
    rows = [_cells(one, columns) for one in found.shown[: given.limit]]
    notes = list(map(escaped, found.notes))
    if len(found.shown) > _MOST_LONG:
        notes.append("timelines and evidence are left out; ask since the time of one chain to see them")
    if any(one.origin == "stored" for one in found.shown):
        notes.append("origin stored: as an agent or a server wrote it; `checked` says what the events here make of it")
    return Answer(
        columns=columns,
        rows=rows,
        limit=given.limit,
        truncated_by="rows" if len(found.shown) > given.limit else "",
        window=found.window,
        notes=tuple(notes),
        resume=lambda shown: _next_chain(call, found, shown),
    )


def _columns(shown: Sequence[ShownChain]) -> tuple[str, ...]:
    """What some chain says; what is long only of a few."""
    left_out = _LONG if len(shown) > _MOST_LONG else frozenset()
    return tuple(
        name
        for name in _FACTS
        if name in _ALWAYS or (name not in left_out and any(getattr(one, name) not in (None, [], "") for one in shown))
    )


def _cells(one: ShownChain, columns: Sequence[str]) -> list[object]:
    return [getattr(one, name) for name in columns]


def _next_chain(call: Call, found: Chains, shown: int) -> str | None:
    """The call that shows the first chain that is not shown here."""
    if shown >= len(found.shown):
        return None
    one = found.shown[shown]
    end_ns = int(one.end_ns or one.start_ns) + 1
    return call.next_call(NAME, {"action": "chains", "since": f"{iso(int(one.start_ns))}/{iso(end_ns)}"})


def _ops(call: Call, given: QueryFleet) -> Answer:
    window = call.window(given.since)
    rows = fleet_ops(call, window) if window else []
    notes = () if rows else explain_empty(call, Scope(window=window))
    if any(_is_more(row) for row in rows):
        notes = (
            "count is what happened, kept what of it lies among the events: an agent keeps the slow and rare ones",
        )
    return _table(call, given, OPS_COLUMNS, rows, window, notes)


def _is_more(row: Sequence[object]) -> bool:
    count, kept = row[OPS_COLUMNS.index("count")], row[OPS_COLUMNS.index("kept")]
    return isinstance(count, int) and isinstance(kept, int) and count > kept


def _overview(call: Call, given: QueryFleet) -> Answer:
    found = chains(call, given.since)
    window = found.window
    columns = ("node", "cluster_id", "events", "first", "last", "jobs", *SEVERITIES, "worst_chain")
    if window is None:
        return _table(call, given, columns, [], None, found.notes)
    between = f"timestamp_ns >= {window.start_ns} AND timestamp_ns < {window.end_ns}"
    read = call.read(
        "SELECT coalesce(node_id, 'unknown') AS place, coalesce(cluster_id, 'unknown') AS cluster, count(*) AS events, "
        "min(timestamp_ns) AS first, max(timestamp_ns) AS last, "
        "list(DISTINCT job_id) FILTER (WHERE job_id IS NOT NULL) AS jobs "
        f"FROM events WHERE {between} GROUP BY ALL ORDER BY ALL LIMIT {MAX_LIMIT}",
        MAX_LIMIT,
    ).rows
    events = {(str(cluster), str(place)): tuple(rest) for place, cluster, *rest in read}
    places = dict.fromkeys([*events, *((one.cluster_id, one.node) for one in found.shown)])
    rows = [_of_node(place, events.get(place), found.shown) for place in places]
    return _table(call, given, columns, rows, window, () if rows else found.notes)


def _of_node(place: tuple[str, str], events: tuple[Any, ...] | None, shown: Sequence[ShownChain]) -> tuple[object, ...]:
    cluster, node = place
    own = [one for one in shown if (one.cluster_id, one.node) == place]
    count, first, last, jobs = events or (0, None, None, [])
    return (
        node,
        cluster,
        count,
        None if first is None else iso(first),
        None if last is None else iso(last),
        sorted(jobs or []),
        *(sum(one.severity == level for one in own) for level in SEVERITIES),
        own[0].summary if own else None,
    )


def _sql(call: Call, given: QueryFleet) -> Answer:
    asked = given.query or given.sql
    if not asked:
        raise ConfigError(f'action sql needs query; for example {{"action": "sql", "query": "{_EXAMPLE_SQL}"}}')
    answer = run_analysis.run_analysis(call, run_analysis.RunAnalysis(sql=asked, limit=given.limit))
    column = "server" if "node" in (name.lower() for name in answer.columns) else "node"
    return replace(answer, columns=(column, *answer.columns), rows=[(THIS_SERVER, *row) for row in answer.rows])


def _table(
    call: Call,
    given: QueryFleet,
    columns: tuple[str, ...],
    rows: Sequence[Sequence[object]],
    window: Window | None,
    notes: Sequence[str],
) -> Answer:
    more = len(rows) > given.limit

    def resume(shown: int) -> str | None:
        if shown < given.limit or given.limit == MAX_LIMIT:  # what an answer can hold is not more with a larger limit
            return None
        wider = {"limit": min(given.limit * 10, MAX_LIMIT)}
        return call.next_call(NAME, given.model_dump(include={"action", "since"}) | wider)

    return Answer(
        columns=columns,
        rows=rows[: given.limit],
        limit=given.limit,
        truncated_by="rows" if more else "",
        window=window,
        notes=tuple(notes),
        resume=resume,
    )


_ACTIONS: Final[Mapping[str, Callable[[Call, QueryFleet], Answer]]] = {
    "chains": _chains,
    "ops": _ops,
    "overview": _overview,
    "sql": _sql,
}

TOOL: Final = FleetTool(
    name=NAME,
    title="Query the fleet",
    description=(
        "What went wrong on which node. action chains (default): causal chains by severity, then time: what was slow "
        "(tail latency, a drop of GPU calls, OOM, TCP retransmits, pod events, a noisy neighbour, CUDA graphs), since "
        "when, what was seen in the same time (coexistence, not proof) and how much more than usual, timeline, "
        "recommendations, ids of events. origin: computed from the events here, or stored by an agent; stored_as and "
        "checked show both where they differ. No rows is not healthy: notes say whether there was data. action ops: "
        "count, p50, p95, p99 per node and operation. action overview: nodes, events, jobs, chains by severity. action "
        f"sql: read-only SQL as {run_analysis.NAME}. The first column is the node (or server, if SQL has a node "
        f"column). since: {WINDOW_FORMS}; default all. An answer holds at most 40 kB."
    ),
    arguments=QueryFleet,
    answer=query_fleet,
    table=FleetTable,
    example={
        "action": "chains",
        "query": _EXAMPLE_SQL,
        "sql": _EXAMPLE_SQL,
        "since": "15m",
        "limit": DEFAULT_LIMIT,
    },
)
