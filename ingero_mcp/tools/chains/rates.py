"""Reading which processes call the GPU, how long they live and how often they call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.analysis.chains.record import BLOCK_NS, CELL_NS, SECOND_NS, Rate, Span
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.calls import GPU, GPU_SOURCES, NODE, Counted, Place, by_place, floor, rows

_SILENT_NS: Final = 3600 * SECOND_NS


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
            f"SELECT {NODE}, pid, {floor(width)} AS start_ns, count(*) AS kept, max(process) AS process, "
            "max(TRY(timestamp_ns + coalesce(duration_ns, 0))) AS last_ns, arg_max(event_seq, timestamp_ns) AS seq "
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
    starts: defaultdict[int, set[int]] = defaultdict(set)
    for pid, start_ns in [*kept, *more]:
        starts[pid].add(start_ns)
    for pid, life in living.items():
        process = max((row["process"] or "" for row in of_place if row["pid"] == pid), default="")
        for start_ns in _with_silence(sorted(starts[pid]), life, width_ns):
            row = kept.get((pid, start_ns))
            yield Rate(
                pid,
                process,
                Span(max(start_ns, life.start_ns), start_ns + width_ns),
                width_ns,
                (row["kept"] if row else 0) + more.get((pid, start_ns), 0),
                row["last_ns"] if row else None,
                f"{row['place']}:{row['seq']}" if row else "",
            )


def _with_silence(starts: list[int], life: Span, width_ns: int) -> Iterator[int]:
    """The bins with calls, and the silent ones after each, for an hour at most: what is silent for longer is idle."""
    ends = [*starts[1:], life.end_ns]
    for start_ns, next_ns in zip(starts, ends, strict=True):
        if start_ns + width_ns > life.start_ns:
            yield from range(start_ns, max(min(next_ns, start_ns + _SILENT_NS), start_ns + 1), width_ns)
