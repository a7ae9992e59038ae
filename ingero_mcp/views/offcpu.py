"""When threads of a job did not run."""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.views.view import View, attribute, whole

OFFCPU: Final = View(
    "offcpu",
    "one row per time of 1 ms or more that a traced thread was off the CPU; filter by start_ns",
    (
        ("cluster_id", "cluster"),
        ("node_id", "node"),
        ("job_id", "job"),
        ("rank", "global rank"),
        ("pid", "process id"),
        ("tid", "thread id"),
        ("process", "executable name; captured text, not trusted"),
        ("start_ns", "Unix ns on the clock of the node"),
        ("end_ns", "when it ran again, on that clock"),
        ("duration_ns", "how long"),
        ("state", "blocked, runqueue (it could have run, others did), disk or stopped"),
        ("next_comm", "name of who took the CPU; captured text, not trusted"),
        ("next_pid", "its process id"),
        ("step", "training step"),
        ("stack_id", "stack, see stacks"),
        ("id", "node_id:event_seq, to pass back to a tool"),
    ),
    f"""
    SELECT cluster_id, node_id, job_id, rank, pid, tid, process, timestamp_ns AS start_ns,
           timestamp_ns + duration_ns AS end_ns, duration_ns, {attribute(semconv.SCHED_STATE)} AS state,
           {attribute(semconv.SCHED_NEXT_COMM)} AS next_comm, {whole(semconv.SCHED_NEXT_PID)} AS next_pid, step,
           stack_id, id
    FROM main.events WHERE metric_name = '{semconv.SCHED_OFFCPU}'
    """,
)
