"""Reading what each node recorded, for its causal chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ingero_mcp.analysis.chains.allocator import ALLOCATIONS
from ingero_mcp.analysis.chains.cpu_taken import RUNNABLE
from ingero_mcp.analysis.chains.record import BLOCK_NS, SECOND_NS, Calls, Record, Span
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains import host
from ingero_mcp.tools.chains.calls import NODE, Place, allocations, by_place, rows
from ingero_mcp.tools.chains.calls import calls as calls_of
from ingero_mcp.tools.chains.calls import counted as counted_of
from ingero_mcp.tools.chains.rates import lives as lives_of
from ingero_mcp.tools.chains.rates import rates as rates_of
from ingero_mcp.tools.chains.slow import slow as slow_calls
from ingero_mcp.tools.scope import equal
from ingero_mcp.windows import Window

LOOK_BACK_NS: Final = 600 * SECOND_NS
"""So much before the window is read too: what is usual, and when something began that goes on."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of the nodes, and what they leave out."""

    nodes: tuple[Record, ...]
    notes: tuple[str, ...] = ()


def read_records(call: Call, window: Window, cluster_id: str | None = None) -> Records:
    """Everything that chains are made of, of the nodes with events in the window, in whole minutes around it."""
    cluster = "true" if cluster_id is None else equal("cluster_id", cluster_id)
    wide = Span(max(window.start_ns - LOOK_BACK_NS, 0), window.end_ns).cells(BLOCK_NS)
    between = f"timestamp_ns >= {wide.start_ns} AND timestamp_ns < {wide.end_ns}"
    where = f"{cluster} AND {between}"
    seen = _seen(call, where)
    counted = counted_of(call, cluster, wide)
    calls = calls_of(call, where, counted)
    names = host.names(call, cluster)
    away = host.away(call, where, names)
    runnable = frozenset(
        (place, one.cell_ns - one.cell_ns % BLOCK_NS)
        for place, of_place in away.items()
        for one in of_place
        if one.state == RUNNABLE
    )
    slow, is_all = slow_calls(call, where, calls, runnable)
    frees = allocations(call, where)
    lives = lives_of(call, where)
    rates = rates_of(call, where, counted, lives)
    switches = host.switches(counted, names)
    io, loads, moments = host.io(call, where), host.loads(call, where), host.moments(call, where)
    starts = host.starts(call, where)
    sent = host.retransmits(call, where, counted)
    pages = host.allocated(counted)
    scheduled = host.scheduled(call, cluster.replace("cluster_id", "s.cluster_id", 1), wide)
    cgroups = host.cgroups(call, where) if scheduled else {}
    children, cores = host.children(call, where), host.cores(call, cluster)
    nodes = tuple(
        Record(
            cluster_id=place[0],
            node_id=place[1],
            span=wide,
            seen=span,
            job_id=job_id,
            cores=cores.get(place),
            calls=tuple(calls.get(place, ())),
            slow=tuple(slow.get(place, ())),
            allocations=tuple(frees.get(place, ())),
            away=tuple(away.get(place, ())),
            switches=tuple(switches.get(place, ())),
            io=tuple(io.get(place, ())),
            starts=tuple(starts.get(place, ())),
            loads=tuple(loads.get(place, ())),
            moments=tuple(moments.get(place, ())),
            rates=tuple(rates.get(place, ())),
            retransmits=tuple(sent.get(place, ())),
            scheduled=tuple(scheduled.get(place, ())),
            allocated=pages.get(place, {}),
            counted=_allocations(calls.get(place, [])),
            lives=lives.get(place, {}),
            children=children.get(place, {}),
            cgroups=cgroups.get(place, frozenset()),
        )
        for place, (span, job_id) in sorted(seen.items())
    )
    return Records(nodes, () if is_all else ("only the minutes with the longest tails were looked into",))


def _seen(call: Call, where: str) -> Mapping[Place, tuple[Span, str | None]]:
    """From when to when each node recorded anything, and the job if all of it is of one."""
    found = rows(
        call,
        f"SELECT {NODE}, min(timestamp_ns) AS first_ns, max(coalesce(TRY(timestamp_ns + duration_ns), timestamp_ns)) "
        "AS last_ns, count(DISTINCT job_id) AS jobs, max(job_id) AS job_id FROM events "
        f"WHERE {where} GROUP BY ALL ORDER BY ALL",
    )
    return {
        place: (
            Span(of_place[0]["first_ns"], of_place[0]["last_ns"] + 1),
            of_place[0]["job_id"] if of_place[0]["jobs"] == 1 else None,
        )
        for place, of_place in by_place(found).items()
    }


def _allocations(calls: list[Calls]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in calls:
        if one.op in ALLOCATIONS:
            found[one.op] += one.count
    return dict(found)
