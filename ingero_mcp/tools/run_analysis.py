"""`fleet.cluster.run_analysis`: read-only SQL over the public relations."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from ingero_mcp.errors import GuardError, QueryError
from ingero_mcp.sqlguard import CheckedQuery, check
from ingero_mcp.tools.answer import DEFAULT_LIMIT, MAX_LIMIT, Answer, Table
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.engine_advice import advice, shortened
from ingero_mcp.tools.tool import FleetTool

NAME: Final = "fleet.cluster.run_analysis"

_LONGEST_NEXT: Final = 2000  # longer SQL is not repeated in the answer
_EXAMPLE_SQL: Final = "SELECT node_id, count(*) AS events FROM events GROUP BY node_id ORDER BY events DESC"


class RunAnalysis(BaseModel):
    """Arguments of run_analysis."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sql: Annotated[
        str,
        Field(description=f"One SELECT (CTEs allowed), DuckDB dialect. Example: {_EXAMPLE_SQL}"),
    ]
    limit: Annotated[
        int,
        Field(
            ge=1,
            le=MAX_LIMIT,
            description=f"Most rows to return: 1 to {MAX_LIMIT}, default {DEFAULT_LIMIT}.",
        ),
    ] = DEFAULT_LIMIT


def run_analysis(call: Call, given: RunAnalysis) -> Answer:
    """Run the caller's SQL. The answer has no window: what it covers is up to the SQL."""
    query = check(given.sql)
    try:
        rows = call.read(query, given.limit)
    except QueryError as error:
        message = str(error)
        raise QueryError("\n".join([shortened(message), *advice(message, query.text)])) from error
    notes: list[str] = []
    if not rows.rows:
        notes.append(_about_no_rows(call))
    if rows.truncated:
        notes.append("pages follow each other without gaps only if the SQL has an ORDER BY that leaves no ties")
    return Answer(
        columns=rows.columns,
        rows=rows.rows,
        limit=given.limit,
        truncated_by=rows.truncated_by,
        notes=tuple(notes),
        resume=lambda shown: _rest_of(call, query, given.limit, shown),
    )


def _rest_of(call: Call, query: CheckedQuery, limit: int, shown: int) -> str | None:
    # The text as it was asked: the rendered one has qualified names, which the guard refuses. The line break ends
    # a comment in the last line.
    sql = f"SELECT * FROM ({query.text.rstrip('; ')}\n) OFFSET {shown}"
    try:
        check(sql)
    except GuardError:  # what may stand alone need not be allowed inside another query
        sql, limit = query.text, min(limit * 10, MAX_LIMIT)
    return call.next_call(NAME, {"sql": sql, "limit": limit}) if len(sql) <= _LONGEST_NEXT else None


def _about_no_rows(call: Call) -> str:
    window = call.window(None)
    if window is None:
        return "no rows: the database has no events yet"
    return f"no rows; the database has events from {window.absolute.replace('/', ' to ')}"


TOOL: Final = FleetTool(
    name=NAME,
    title="Run SQL",
    description=(
        "Run one read-only SQL query (DuckDB dialect) over `events` (one row per metric sample, span or "
        "log record) and the views `nodes` and `clusters`; their columns are in the resource "
        "fleet://schema. Times are Unix nanoseconds in UTC (timestamp_ns). Rows are arrays in the order "
        "of `columns`. In structured content a column that holds an integer beyond 2^53-1 (every "
        "timestamp_ns) is decimal strings; use them quoted or not. NaN and infinities are the strings "
        f"NaN, Infinity, -Infinity; blobs are hex. limit: 1 to {MAX_LIMIT} rows, default {DEFAULT_LIMIT}; "
        "an answer holds at most 40 kB, so aggregate in SQL. When truncated, `next` is the call that goes "
        "on. Refused SQL comes back with the reason and the allowed form."
    ),
    arguments=RunAnalysis,
    answer=run_analysis,
    table=Table,
    example={"sql": _EXAMPLE_SQL, "limit": DEFAULT_LIMIT},
)
