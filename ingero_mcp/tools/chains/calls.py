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
from ingero_mcp.analysis.chains.record import BLOCK_NS, SECOND_NS, Allocations, Calls, Span
from ingero_mcp.analysis.chains.sampled import FRACTIONS, Sampled
from ingero_mcp.tools.call import Call

Place: TypeAlias = tuple[str, str]
"""Cluster and node."""

MAX_BYTES: Final = 64 << 20
GPU_SOURCES: Final = ("cuda", "driver", "graph")
GPU: Final = f"source IN {GPU_SOURCES}"
TIMED: Final = f"duration_ns BETWEEN 0 AND {10 * 366 * 86_400 * SECOND_NS} AND timestamp_ns BETWEEN 0 AND {1 << 62}"
"""The condition that an event has a duration that can be one: no sum of such a time and length overflows."""
OFF_CPU: Final = f"metric_name IN ('{semconv.SCHED_OFFCPU}', 'sched_switch')"
NODE: Final = "coalesce(cluster_id, 'unknown') AS cluster, coalesce(node_id, 'unknown') AS place"


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
        f"SELECT {NODE}, source, metric_name AS op, {floor(BLOCK_NS)} AS block_ns, count(*) AS kept, "
        f"sum(CAST(duration_ns AS DOUBLE)) AS kept_ns, {quantiles} AS quantiles, "
        f"quantile_disc(bytes, 0.5) AS p50_bytes FROM events WHERE {where} AND {GPU} AND {TIMED} "
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


def floor(width_ns: int) -> str:
    """SQL for the start of the bin that an event lies in."""
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
        sampled = sampled_of(row["kept"], int(row["kept_ns"]), quantiles, of_agent)
        p50, p99, count = sampled.quantile_ns(0.5), sampled.quantile_ns(0.99), sampled.count
    return Calls(row["source"], row["op"], row["block_ns"], count, p50, p99, row["p50_bytes"])


def sampled_of(kept: int, kept_ns: int, quantiles: list[int], of_agent: tuple[int, int, int]) -> Sampled:
    """Events beyond those that the agent says it stored were never counted: those of the first seconds of a run."""
    count, stored, sum_ns = of_agent
    left = max(count - min(kept, stored), 0)
    # Of the sum only what the kept ones leave; where also uncounted ones are kept, the usual share of them.
    own_ns = kept_ns if kept <= stored else int(stored * (quantiles[len(quantiles) // 2] if stored else 0))
    return Sampled(kept, quantiles, left, max(sum_ns - own_ns, 0) if left else 0)


def allocations(call: Call, where: str) -> dict[Place, list[Allocations]]:
    """The calls of the GPU's allocator by process and second."""
    names = ", ".join(f"'{name}'" for name in sorted(FREES))
    found = rows(
        call,
        f"SELECT {NODE}, metric_name AS op, pid, max(process) AS process, min(timestamp_ns) AS start_ns, "
        "max(timestamp_ns + duration_ns) AS end_ns, count(*) AS count, sum(duration_ns) AS total_ns, "
        "max(duration_ns) AS longest_ns, arg_max(event_seq, duration_ns, 3) AS seqs FROM events "
        f"WHERE {where} AND metric_name IN ({names}) AND {TIMED} "
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
