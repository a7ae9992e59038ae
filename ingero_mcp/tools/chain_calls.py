"""Reading the calls of the GPU that chains are made of: how long they usually take, the slow ones, how often they come.

An Ingero agent keeps the slow calls as events and counts the rest by the minute; both are put together here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ingero_mcp import semconv
from ingero_mcp.analysis.chains.allocator import FREES
from ingero_mcp.analysis.chains.bursts import TAIL_RATIO, has_tail
from ingero_mcp.analysis.chains.cpu_taken import RUNNABLE
from ingero_mcp.analysis.chains.record import BLOCK_NS, CELL_NS, SECOND_NS, Allocations, Calls, Rate, Slow, Span
from ingero_mcp.analysis.chains.sampled import FRACTIONS, Sampled
from ingero_mcp.analysis.chains.tail_latency import SYNCHRONIZES
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.scope import as_sql
from ingero_mcp.views import AGENT_ARG0
from ingero_mcp.views.view import attribute

Place: TypeAlias = tuple[str, str]
"""Cluster and node."""

MAX_BYTES: Final = 200 << 20
GPU_SOURCES: Final = ("cuda", "driver", "graph")
GPU: Final = f"source IN {GPU_SOURCES}"
OFF_CPU: Final = f"metric_name IN ('{semconv.SCHED_OFFCPU}', 'sched_switch')"
NODE: Final = "coalesce(cluster_id, 'unknown') AS cluster, coalesce(node_id, 'unknown') AS place"

_LAUNCHES: Final = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
_WARM_UP_NS: Final = 10 * SECOND_NS
_MOST_BLOCKS: Final = 400  # with a tail, that are looked into: the worst
_PER_QUERY: Final = 200


@dataclass(frozen=True, slots=True)
class Counted:
    """What an agent counted of one operation of one process in one minute."""

    source: str
    op: str
    pid: int | None
    block_ns: int
    count: int
    stored: int
    sum_ns: int
    longest_ns: int
    bytes: int


def rows(call: Call, sql: str) -> list[dict[str, Any]]:
    """All rows of a query of our own."""
    found: list[dict[str, Any]] = call.table(sql, MAX_BYTES).to_pylist()
    return found


def by_place(found: Iterable[dict[str, Any]]) -> dict[Place, list[dict[str, Any]]]:
    """The rows of each node."""
    places: defaultdict[Place, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        places[row["cluster"], row["place"]].append(row)
    return dict(places)


def counted(call: Call, where: str, span: Span) -> dict[Place, list[Counted]]:
    """What agents counted, by node; `where` is a condition on cluster and node."""
    found = rows(
        call,
        f"SELECT {NODE}, source, op, pid, bucket_ns, count, coalesce(stored, 0) AS stored, "
        "coalesce(sum_duration_ns, 0) AS sum_ns, coalesce(max_duration_ns, 0) AS longest_ns, "
        f"coalesce(sum_arg0, 0) AS bytes FROM aggregates WHERE {where} AND bucket_ns >= {span.start_ns} "
        f"AND bucket_ns < {span.end_ns}",
    )
    return {
        place: [
            Counted(row["source"] or "", row["op"], row["pid"], row["bucket_ns"], row["count"], row["stored"],
                    row["sum_ns"], row["longest_ns"], row["bytes"])
            for row in of_place if row["op"] is not None
        ]
        for place, of_place in by_place(found).items()
    }  # fmt: skip


def calls(call: Call, where: str, known: Mapping[Place, list[Counted]]) -> dict[Place, list[Calls]]:
    """How long each operation took, by minute, with what was only counted."""
    fractions = ", ".join(f"{fraction:g}" for fraction in FRACTIONS)
    quantiles = f"quantile_disc(duration_ns, [{fractions}])" if known else "quantile_disc(duration_ns, [0.5, 0.99])"
    found = rows(
        call,
        f"SELECT {NODE}, source, metric_name AS op, {_floor(BLOCK_NS)} AS block_ns, count(*) AS kept, "
        f"sum(CAST(duration_ns AS DOUBLE)) AS kept_ns, {quantiles} AS quantiles, "
        f"quantile_disc(bytes, 0.5) AS p50_bytes FROM events WHERE {where} AND {GPU} AND duration_ns >= 0 "
        "GROUP BY ALL ORDER BY ALL",
    )
    unkept = {place: _unkept(of_place) for place, of_place in known.items()}
    kept = by_place(found)
    return {
        place: [
            *(_calls(row, unkept.get(place, {}), is_whole=not known) for row in kept.get(place, ())),
            *_only_counted(known.get(place, []), kept.get(place, [])),
        ]
        for place in dict.fromkeys([*kept, *known])
    }


def _only_counted(of_agent: list[Counted], kept: list[dict[str, Any]]) -> Iterator[Calls]:
    """Operations of which not one call of a minute was kept: all of them were as long as usual."""
    there = {(row["op"], row["block_ns"]) for row in kept}
    found: defaultdict[tuple[str, str, int], list[Counted]] = defaultdict(list)
    for one in of_agent:
        if one.source in GPU_SOURCES and one.count and (one.op, one.block_ns) not in there:
            found[one.source, one.op, one.block_ns].append(one)
    for (source, op, block_ns), rows_ in found.items():
        count = sum(one.count for one in rows_)
        mean_ns = sum(one.sum_ns for one in rows_) // count
        # Of a hundred calls the longest is the 99th percentile; of more it says nothing about it.
        longest_ns = max(one.longest_ns for one in rows_) if count <= 100 else mean_ns
        yield Calls(source, op, block_ns, count, mean_ns, max(mean_ns, longest_ns))


def _floor(width_ns: int) -> str:
    return f"(timestamp_ns // {width_ns}) * {width_ns}"


def _unkept(of_place: list[Counted]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Of each operation and minute what was counted, what of it was kept, and the sum of all durations."""
    found: defaultdict[tuple[str, int], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for one in of_place:
        count, stored, sum_ns = found[one.op, one.block_ns]
        found[one.op, one.block_ns] = (count + one.count, stored + one.stored, sum_ns + one.sum_ns)
    return dict(found)


def _calls(row: dict[str, Any], unkept: dict[tuple[str, int], tuple[int, int, int]], *, is_whole: bool) -> Calls:
    quantiles = row["quantiles"]
    if is_whole:
        p50, p99, count = quantiles[0], quantiles[1], row["kept"]
    else:
        of_agent = unkept.get((row["op"], row["block_ns"]), (0, 0, 0))
        sampled = _sampled(row["kept"], int(row["kept_ns"]), quantiles, of_agent)
        p50, p99, count = sampled.quantile_ns(0.5), sampled.quantile_ns(0.99), sampled.count
    return Calls(row["source"], row["op"], row["block_ns"], count, p50, p99, row["p50_bytes"])


def _sampled(kept: int, kept_ns: int, quantiles: list[int], of_agent: tuple[int, int, int]) -> Sampled:
    """Events beyond those that the agent says it stored were never counted: those of the first seconds of a run."""
    count, stored, sum_ns = of_agent
    left = max(count - min(kept, stored), 0)
    # Of the sum only what the kept ones leave; where also uncounted ones are kept, the usual share of them.
    own_ns = kept_ns if kept <= stored else int(stored * (quantiles[len(quantiles) // 2] if stored else 0))
    return Sampled(kept, quantiles, left, max(sum_ns - own_ns, 0) if left else 0)


def slow(
    call: Call, where: str, known: Mapping[Place, list[Calls]], runnable: frozenset[tuple[Place, int]]
) -> tuple[dict[Place, list[Slow]], bool]:
    """The slow calls of the minutes with a tail, and whether those are all of them; `runnable` are the minutes in which
    threads are known to have waited for a CPU, without which calls that wait for the GPU say nothing."""
    tails = [
        (place, one)
        for place, of_place in known.items()
        for one in of_place
        if has_tail(one) and (one.op not in SYNCHRONIZES or (place, one.block_ns) in runnable)
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
        known AS (SELECT {NODE}, metric_name AS op, pid, timestamp_ns FROM events WHERE {GPU} AND duration_ns >= 0),
        firsts AS (SELECT cluster, place, op, pid, min(timestamp_ns) AS first_ns FROM known GROUP BY ALL),
        births AS (SELECT cluster, place, pid, min(first_ns) AS born_ns FROM firsts GROUP BY ALL),
        launches AS (
            SELECT {NODE}, metric_name AS op, pid, {attribute(AGENT_ARG0)} AS function, min(timestamp_ns) AS first_ns
            FROM events WHERE {where} AND metric_name IN ({launches}) AND contains(attrs_json, '{AGENT_ARG0}')
            GROUP BY ALL),
        here AS (
            SELECT {NODE}, metric_name AS op, pid, tid, process, timestamp_ns AS start_ns,
                   timestamp_ns + duration_ns AS end_ns, duration_ns, bytes, event_seq, {_floor(BLOCK_NS)} AS block_ns,
                   CASE WHEN metric_name IN ({launches}) THEN {attribute(AGENT_ARG0)} END AS function
            FROM events WHERE {where} AND {GPU} AND duration_ns >= 0),
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
            FROM events WHERE {where} AND {OFF_CPU} AND duration_ns > 0
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


def allocations(call: Call, where: str) -> dict[Place, list[Allocations]]:
    """The calls of the GPU's allocator by process and second."""
    names = ", ".join(f"'{name}'" for name in sorted(FREES))
    found = rows(
        call,
        f"SELECT {NODE}, metric_name AS op, pid, max(process) AS process, min(timestamp_ns) AS start_ns, "
        "max(timestamp_ns + duration_ns) AS end_ns, count(*) AS count, sum(duration_ns) AS total_ns, "
        "max(duration_ns) AS longest_ns, arg_max(event_seq, duration_ns, 3) AS seqs FROM events "
        f"WHERE {where} AND metric_name IN ({names}) AND duration_ns >= 0 "
        f"GROUP BY cluster, place, op, pid, timestamp_ns // {SECOND_NS} ORDER BY start_ns",
    )
    return {
        place: [
            Allocations(row["op"], row["pid"], row["process"] or "", row["start_ns"], row["end_ns"], row["count"],
                        int(row["total_ns"]), row["longest_ns"],
                        tuple(f"{row['place']}:{seq}" for seq in row["seqs"] or ()))
            for row in of_place
        ]
        for place, of_place in by_place(found).items()
    }  # fmt: skip


def lives(call: Call, where: str) -> dict[Place, dict[int, Span]]:
    """From when each process called the GPU, and until when it was seen to do anything."""
    found = rows(
        call,
        f"SELECT {NODE}, pid, min(timestamp_ns) FILTER (WHERE {GPU}) AS born_ns, "
        "max(timestamp_ns) AS seen_ns FROM events WHERE "
        f"{where} AND pid IS NOT NULL AND metric_name NOT IN ('{semconv.PROCESS_EXIT}', 'process_exit') "
        f"GROUP BY ALL HAVING count(*) FILTER (WHERE {GPU}) > 0",
    )
    return {
        place: {row["pid"]: Span(row["born_ns"], row["seen_ns"] + 1) for row in of_place}
        for place, of_place in by_place(found).items()
    }


def rates(
    call: Call, where: str, known: Mapping[Place, list[Counted]], living: Mapping[Place, dict[int, Span]]
) -> dict[Place, list[Rate]]:
    """How often each process called the GPU: by cells of its events, or by minutes where an agent counted."""
    found: dict[Place, list[Rate]] = {}
    for width, is_agent in ((CELL_NS, False), (BLOCK_NS, True)):
        if is_agent and not known:
            continue
        sql = (
            f"SELECT {NODE}, pid, {_floor(width)} AS start_ns, count(*) AS kept, max(process) AS process, "
            "max(timestamp_ns + coalesce(duration_ns, 0)) AS last_ns, arg_max(event_seq, timestamp_ns) AS seq "
            f"FROM events WHERE {where} AND {GPU} AND pid IS NOT NULL GROUP BY ALL"
        )
        for place, of_place in by_place(rows(call, sql)).items():
            if (place in known) == is_agent:
                found[place] = list(_rates(of_place, known.get(place, []), living.get(place, {}), width))
    return found


def _rates(
    of_place: list[dict[str, Any]], known: list[Counted], living: dict[int, Span], width_ns: int
) -> Iterator[Rate]:
    kept = {(row["pid"], row["start_ns"]): row for row in of_place}
    more: defaultdict[tuple[int, int], int] = defaultdict(int)
    for one in known:
        if one.pid is not None and one.source in GPU_SOURCES:
            more[one.pid, one.block_ns] += max(one.count - one.stored, 0)
    for pid, life in living.items():
        process = max((row["process"] or "" for row in of_place if row["pid"] == pid), default="")
        for start_ns in range(life.start_ns - life.start_ns % width_ns, life.end_ns, width_ns):
            row = kept.get((pid, start_ns))
            yield Rate(
                pid,
                process,
                Span(max(start_ns, life.start_ns), start_ns + width_ns),
                width_ns,
                (row["kept"] if row else 0) + more[pid, start_ns],
                row["last_ns"] if row else None,
                f"{row['place']}:{row['seq']}" if row else "",
            )
