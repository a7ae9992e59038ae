"""Reading the slow calls of the GPU, without those of a cold start, and how long their threads were off the CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.analysis.chains.bursts import TAIL_RATIO, has_tail
from ingero_mcp.analysis.chains.cpu_taken import RUNNABLE
from ingero_mcp.analysis.chains.record import BLOCK_NS, CELL_NS, SECOND_NS, Calls, Slow
from ingero_mcp.analysis.chains.tail_latency import SYNCHRONIZES
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.calls import GPU, NODE, OFF_CPU, TIMED, Place, floor, rows
from ingero_mcp.tools.scope import as_sql
from ingero_mcp.views import AGENT_ARG0
from ingero_mcp.views.view import attribute

_LAUNCHES: Final = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
_WARM_UP_NS: Final = 10 * SECOND_NS
_MOST_BLOCKS: Final = 400  # with a tail, that are looked into: the worst
_PER_QUERY: Final = 200
_LONGEST_NAME: Final = 256  # of a cluster, node or operation: a query may not be as long as names that somebody sends


def slow(
    call: Call, where: str, known: Mapping[Place, list[Calls]], runnable: frozenset[tuple[Place, int]]
) -> tuple[dict[Place, list[Slow]], bool]:
    """The slow calls of the minutes with a tail, and whether those are all of them; `runnable` are the minutes in which
    threads are known to have waited for a CPU, without which calls that wait for the GPU say nothing."""
    tails = [
        (place, one)
        for place, of_place in known.items()
        for one in of_place
        if has_tail(one)
        and max(map(len, (*place, one.op))) <= _LONGEST_NAME
        and (one.op not in SYNCHRONIZES or (place, one.block_ns) in runnable)
    ]
    tails.sort(key=lambda tail: (tail[1].op in SYNCHRONIZES, -tail[1].count * (tail[1].p99_ns - tail[1].p50_ns)))
    found: defaultdict[Place, list[Slow]] = defaultdict(list)
    for begin in range(0, min(len(tails), _MOST_BLOCKS), _PER_QUERY):
        for row in rows(call, _slow_sql(where, tails[begin : begin + _PER_QUERY])):
            found[row["cluster"], row["place"]].append(_slow(row))
    return dict(found), len(tails) <= _MOST_BLOCKS


def _slow(row: dict[str, Any]) -> Slow:
    return Slow(
        op=row["op"],
        pid=row["pid"],
        process=row["process"] or "",
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        count=row["count"],
        excess_ns=int(row["excess_ns"]),
        longest_ns=row["longest_ns"],
        p50_bytes=row["p50_bytes"],
        off_cpu_ns=int(row["off_cpu_ns"] or 0),
        event_ids=tuple(f"{row['place']}:{seq}" for seq in row["seqs"] or ()),
    )


def _slow_sql(where: str, tails: list[tuple[Place, Calls]]) -> str:
    limits = ", ".join(
        f"({as_sql(place[0])}, {as_sql(place[1])}, {as_sql(one.op)}, {one.block_ns}, {one.p50_ns})"
        for place, one in tails
    )
    launches = ", ".join(f"'{name}'" for name in _LAUNCHES)
    waits = ", ".join(f"'{name}'" for name in sorted(SYNCHRONIZES))
    state = attribute(semconv.SCHED_STATE)
    same = "{0}.cluster = {1}.cluster AND {0}.place = {1}.place AND {0}.pid IS NOT DISTINCT FROM {1}.pid"
    return f"""
        WITH limits(cluster, place, op, block_ns, p50_ns) AS (VALUES {limits}),
        known AS (SELECT {NODE}, metric_name AS op, pid, timestamp_ns FROM events WHERE {GPU} AND {TIMED}),
        firsts AS (SELECT cluster, place, op, pid, min(timestamp_ns) AS first_ns FROM known GROUP BY ALL),
        births AS (SELECT cluster, place, pid, min(first_ns) AS born_ns FROM firsts GROUP BY ALL),
        launches AS (
            SELECT {NODE}, metric_name AS op, pid, {attribute(AGENT_ARG0)} AS function, min(timestamp_ns) AS first_ns
            FROM events WHERE {where} AND metric_name IN ({launches}) AND contains(attrs_json, '{AGENT_ARG0}')
            GROUP BY ALL),
        here AS (
            SELECT {NODE}, metric_name AS op, pid, tid, process, timestamp_ns AS start_ns,
                   timestamp_ns + duration_ns AS end_ns, duration_ns, bytes, event_seq, {floor(BLOCK_NS)} AS block_ns,
                   CASE WHEN metric_name IN ({launches}) THEN {attribute(AGENT_ARG0)} END AS function
            FROM events WHERE {where} AND {GPU} AND {TIMED}),
        slow AS (
            SELECT here.*, limits.p50_ns FROM here JOIN limits ON limits.cluster = here.cluster
                AND limits.place = here.place AND limits.op = here.op AND limits.block_ns = here.block_ns
            WHERE here.duration_ns > {TAIL_RATIO:g} * limits.p50_ns),
        warm AS (
            SELECT slow.* FROM slow
            JOIN firsts ON {same.format("firsts", "slow")} AND firsts.op = slow.op
            JOIN births ON {same.format("births", "slow")}
            LEFT JOIN launches ON {same.format("launches", "slow")} AND launches.op = slow.op
                AND launches.function = slow.function
            WHERE slow.start_ns > firsts.first_ns AND slow.start_ns IS DISTINCT FROM launches.first_ns
              AND (slow.op NOT IN ({launches}) OR slow.function IS NOT NULL
                   OR slow.start_ns > births.born_ns + {_WARM_UP_NS})),
        away AS (
            SELECT {NODE}, pid, tid, timestamp_ns AS off_ns, timestamp_ns + duration_ns AS on_ns,
                   timestamp_ns // {SECOND_NS} AS second, {state} AS state
            FROM events WHERE {where} AND {OFF_CPU} AND {TIMED}
              AND coalesce({state}, '{RUNNABLE}') = '{RUNNABLE}'),
        lost AS (
            SELECT warm.cluster, warm.place, warm.event_seq, warm.start_ns,
                   sum(least(away.on_ns, warm.end_ns) - greatest(away.off_ns, warm.start_ns)) AS off_cpu_ns
            FROM warm JOIN away ON {same.format("away", "warm")} AND away.tid = warm.tid
                AND away.second = warm.start_ns // {SECOND_NS}
            WHERE away.off_ns < warm.end_ns AND away.on_ns > warm.start_ns
              AND (away.state IS NOT NULL OR warm.op NOT IN ({waits}))
            GROUP BY ALL)
        SELECT warm.cluster AS cluster, warm.place AS place, warm.op AS op, warm.pid AS pid,
               max(warm.process) AS process, min(warm.start_ns) AS start_ns, max(warm.end_ns) AS end_ns,
               count(*) AS count, sum(warm.duration_ns - warm.p50_ns) AS excess_ns,
               max(warm.duration_ns) AS longest_ns, quantile_disc(warm.bytes, 0.5) AS p50_bytes,
               sum(lost.off_cpu_ns) AS off_cpu_ns, arg_max(warm.event_seq, warm.duration_ns, 3) AS seqs
        FROM warm LEFT JOIN lost ON lost.cluster = warm.cluster AND lost.place = warm.place
            AND lost.event_seq = warm.event_seq AND lost.start_ns = warm.start_ns
        GROUP BY warm.cluster, warm.place, warm.op, warm.pid, warm.start_ns // {CELL_NS}
        ORDER BY start_ns, op, pid"""
