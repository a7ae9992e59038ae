"""The timeline: what a rank did in the half second before it was late, one line per thing."""

from __future__ import annotations

from typing import Final

from ingero_mcp.analysis.words import duration_text
from ingero_mcp.cells import escaped
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.jobs import Job
from ingero_mcp.views.view import attribute

SPAN_NS: Final = 500_000_000
MOST_LINES: Final = 20
_MOST_DETAIL: Final = 80


def timeline(call: Call, job: Job, rank: int, end_ns: int) -> list[str]:
    """Lines of the last 500 ms before `end_ns` of a rank, grouped by what happened; stacks included.

    Calls of one name that follow each other are one line: `-312 ms  40 x cudaFree, 174 ms`.
    """
    rows = call.read(
        "SELECT metric_name, min(timestamp_ns) AS first_ns, count(*) AS calls, "
        "TRY_CAST(sum(duration_ns) AS BIGINT) AS total_ns, max(stack_id) AS stack_id, "
        f"max({attribute('sched.state')}) AS state, "
        f"max({attribute('sched.next_comm')}) AS taker, "
        f"max({attribute('io.path')}) AS path FROM ("
        "SELECT *, row_number() OVER (ORDER BY timestamp_ns, event_seq) "
        "- row_number() OVER (PARTITION BY metric_name ORDER BY timestamp_ns, event_seq) AS run FROM events "
        f"WHERE {job.where(None)} AND rank = {rank} AND timestamp_ns >= {end_ns - SPAN_NS} "
        f"AND timestamp_ns <= {end_ns} AND metric_name NOT IN ('nccl.communicator', 'recorder.dump')) "
        f"GROUP BY metric_name, run ORDER BY first_ns DESC LIMIT {MOST_LINES}",
        MOST_LINES,
    ).rows
    lines = []
    for name, first_ns, calls, total_ns, stack_id, state, taker, path in reversed(rows):
        before = duration_text(int(str(first_ns)) - end_ns) if first_ns != end_ns else "0 ns"
        many = f"{calls} x " if calls != 1 else ""
        how_long = f", {duration_text(float(str(total_ns)))}" if total_ns is not None else ""
        detail = "".join(f", {word}" for word in (state, taker and f"CPU to {taker}", path) if word)
        line = f"{before}  {many}{escaped(str(name))}{how_long}{escaped(detail)[:_MOST_DETAIL]}"
        lines.append(line + _stack(call, stack_id))
    return lines


def _stack(call: Call, stack_id: object) -> str:
    if stack_id is None:
        return ""
    rows = call.read(f"SELECT frames FROM stacks WHERE stack_id = '{_hex(stack_id)}' LIMIT 1").rows
    frames = str(rows[0][0]) if rows and rows[0][0] is not None else ""
    return f"  at {escaped(frames)[:_MOST_DETAIL]}" if frames else ""


def _hex(stack_id: object) -> str:
    return "".join(letter for letter in str(stack_id) if letter.isalnum())[:64]
