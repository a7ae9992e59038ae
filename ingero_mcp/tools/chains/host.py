"""Reading what happened on a host beside the calls of the GPU: who ran, what was read and written, what was killed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.analysis.chains import cuda_graphs, single_events
from ingero_mcp.analysis.chains.record import (
    BLOCK_NS,
    CELL_NS,
    Away,
    Io,
    Load,
    Moment,
    Retransmits,
    Scheduled,
    Span,
    Starts,
    Switches,
)
from ingero_mcp.analysis.retransmits import NAMES as RETRANSMITS
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.calls import GPU, NODE, OFF_CPU, TIMED, Counted, Place, by_place, floor, rows
from ingero_mcp.views import AGENT_ARG1, AGENT_CGROUP_ID, AGENT_RET_CODE
from ingero_mcp.views.view import attribute, whole

SWITCHES: Final = "sched_switch"
PAGES: Final = "mm_page_alloc"

_SLEEP_NS: Final = 100_000_000  # a time off the CPU of which nobody said why counts no longer than this
_VICTIMS: Final = ("oom.victim", "process.command", "k8s.pod.name", "ingero.pod_name")
_MOST_MOMENTS: Final = 20_000


def away(call: Call, where: str, known: Mapping[Place, dict[int, str]]) -> dict[Place, list[Away]]:
    """When threads of processes that call the GPU were off the CPU, and who took it, by the names that are `known` if
    nothing else. An agent says in arg1 who ran before, older ones the thread itself."""
    state, by = attribute(semconv.SCHED_STATE), attribute(semconv.SCHED_NEXT_COMM)
    taker = f"coalesce({whole(semconv.SCHED_NEXT_PID)}, nullif(nullif({whole(AGENT_ARG1)}, pid), tid))"
    found = rows(
        call,
        f"WITH callers AS (SELECT DISTINCT {NODE}, pid FROM events WHERE {where} AND {GPU} AND pid IS NOT NULL), "
        f"off AS (SELECT {NODE}, pid, process, {floor(CELL_NS)} AS cell_ns, coalesce({state}, '') AS state, "
        f"coalesce({by}, '') AS taken_by, {taker} AS by_pid, duration_ns, event_seq FROM events "
        f"WHERE {where} AND {OFF_CPU} AND {TIMED}) "
        "SELECT off.cluster AS cluster, off.place AS place, off.pid AS pid, max(off.process) AS process, "
        "off.cell_ns AS cell_ns, off.state AS state, off.taken_by AS taken_by, off.by_pid AS by_pid, "
        "count(*) AS count, "
        f"sum(CASE WHEN off.state = '' THEN least(off.duration_ns, {_SLEEP_NS}) ELSE off.duration_ns END) AS ns, "
        "arg_max(off.event_seq, off.duration_ns) AS seq FROM off JOIN callers ON callers.cluster = off.cluster "
        "AND callers.place = off.place AND callers.pid = off.pid "
        "GROUP BY off.cluster, off.place, off.pid, off.cell_ns, off.state, off.taken_by, off.by_pid ORDER BY ALL",
    )
    return {
        place: [_away(row, known.get(place, {})) for row in of_place] for place, of_place in by_place(found).items()
    }


def _away(row: dict[str, Any], known: Mapping[int, str]) -> Away:
    return Away(
        pid=row["pid"],
        process=row["process"] or "",
        cell_ns=row["cell_ns"],
        state=row["state"],
        by=row["taken_by"] or known.get(row["by_pid"], ""),
        by_pid=row["by_pid"],
        count=row["count"],
        off_cpu_ns=int(row["ns"]),
        event_id=f"{row['place']}:{row['seq']}",
    )


def switches(
    known: Mapping[Place, list[Counted]], names: Mapping[Place, dict[int, str]]
) -> dict[Place, list[Switches]]:
    """How often an agent saw each process being switched to."""
    return {
        place: [
            Switches(one.pid, names.get(place, {}).get(one.pid, ""), one.block_ns, one.count, one.sum_ns,
                     one.longest_ns)
            for one in of_place
            if one.op == SWITCHES and one.pid is not None
        ]
        for place, of_place in known.items()
    }  # fmt: skip


def allocated(known: Mapping[Place, list[Counted]]) -> dict[Place, dict[int, int]]:
    """Bytes of host memory that an agent saw being allocated, by minute."""
    found: dict[Place, dict[int, int]] = {}
    for place, of_place in known.items():
        sums: defaultdict[int, int] = defaultdict(int)
        for one in of_place:
            sums[one.block_ns] += max(one.bytes, 0) if one.op == PAGES else 0
        found[place] = dict(sums)
    return found


def io(call: Call, where: str) -> dict[Place, list[Io]]:
    """Operations on disks and files."""
    found = rows(
        call,
        f"SELECT {NODE}, metric_name AS op, pid, max(process) AS process, {floor(CELL_NS)} AS cell_ns, "
        "count(*) AS count, sum(duration_ns) AS total_ns, max(duration_ns) AS longest_ns, "
        "sum(coalesce(bytes, 0)) AS bytes, arg_max(event_seq, duration_ns) AS seq FROM events "
        f"WHERE {where} AND source = 'io' AND {TIMED} GROUP BY ALL ORDER BY ALL",
    )
    return {
        place: [
            Io(row["op"], row["pid"], row["process"] or "", row["cell_ns"], row["count"], int(row["total_ns"]),
               row["longest_ns"], int(row["bytes"]), f"{row['place']}:{row['seq']}")
            for row in of_place
        ]
        for place, of_place in by_place(found).items()
    }  # fmt: skip


def starts(call: Call, where: str) -> dict[Place, list[Starts]]:
    """Programs that were started."""
    found = rows(
        call,
        f"SELECT {NODE}, coalesce(process, '') AS process, {floor(CELL_NS)} AS cell_ns, count(*) AS count, "
        f"min(event_seq) AS seq FROM events WHERE {where} AND metric_name IN ('process.exec', 'process_exec') "
        "GROUP BY ALL ORDER BY ALL",
    )
    return {
        place: [Starts(row["process"], row["cell_ns"], row["count"], f"{place[1]}:{row['seq']}") for row in of_place]
        for place, of_place in by_place(found).items()
    }


def loads(call: Call, where: str) -> dict[Place, list[Load]]:
    """Samples of the host's load; `where` is about the view snapshots."""
    found = rows(
        call,
        f"SELECT {NODE}, timestamp_ns, cpu_pct, mem_pct, swap_mb, load_avg FROM snapshots WHERE {where} "
        "ORDER BY timestamp_ns",
    )
    return {
        place: [Load(row["timestamp_ns"], row["cpu_pct"], row["mem_pct"], row["swap_mb"], row["load_avg"])
                for row in of_place]
        for place, of_place in by_place(found).items()
    }  # fmt: skip


def moments(call: Call, where: str) -> dict[Place, list[Moment]]:
    """Single events that mean something, the first of them."""
    names = ", ".join(f"'{name}'" for name in sorted(single_events.NAMES | cuda_graphs.NAMES))
    ends = ", ".join(f"'{name}'" for name in sorted(cuda_graphs.ENDS))
    code = f"coalesce({attribute(semconv.CUDA_RETURN_CODE)}, {attribute(AGENT_RET_CODE)})"
    victims = ", ".join(attribute(name) for name in _VICTIMS)
    found = rows(
        call,
        f"SELECT {NODE}, metric_name AS name, timestamp_ns, pid, process, event_seq, "
        f"CASE WHEN metric_name IN ({ends}) THEN {code} ELSE coalesce({victims}) END AS about, "
        f"CASE WHEN metric_name = 'oom_kill' THEN {whole(AGENT_ARG1)} END AS victim "
        f"FROM events WHERE {where} AND metric_name IN ({names}) ORDER BY timestamp_ns LIMIT {_MOST_MOMENTS}",
    )
    return {place: [_moment(row) for row in of_place] for place, of_place in by_place(found).items()}


def _moment(row: dict[str, Any]) -> Moment:
    about = row["about"] or (f"pid {row['victim']}" if row["victim"] else "")
    return Moment(
        row["name"], row["timestamp_ns"], row["pid"], row["process"] or "", about, f"{row['place']}:{row['event_seq']}"
    )


def retransmits(call: Call, where: str, known: Mapping[Place, list[Counted]]) -> dict[Place, list[Retransmits]]:
    """Segments that were sent again, by minute: the events, or what an agent counted where that is more."""
    names = ", ".join(f"'{name}'" for name in RETRANSMITS)
    found = rows(
        call,
        f"SELECT {NODE}, {floor(BLOCK_NS)} AS block_ns, count(*) AS count, min(event_seq) AS seq FROM events "
        f"WHERE {where} AND metric_name IN ({names}) GROUP BY ALL ORDER BY ALL",
    )
    sums: defaultdict[Place, dict[int, Retransmits]] = defaultdict(dict)
    for place, of_place in by_place(found).items():
        for row in of_place:
            sums[place][row["block_ns"]] = Retransmits(row["block_ns"], row["count"], f"{place[1]}:{row['seq']}")
    for place, counts in known.items():
        for block_ns in {one.block_ns for one in counts if one.op in RETRANSMITS}:
            count = sum(one.count for one in counts if one.op in RETRANSMITS and one.block_ns == block_ns)
            seen = sums[place].get(block_ns, Retransmits(block_ns, 0))
            sums[place][block_ns] = Retransmits(block_ns, max(count, seen.count), seen.event_id)
    return {place: list(of_place.values()) for place, of_place in sums.items()}


def scheduled(call: Call, where: str, span: Span) -> dict[Place, list[Scheduled]]:
    """How long threads of each cgroup were off the CPU, as an agent summed it."""
    found = rows(
        call,
        f"SELECT coalesce(s.cluster_id, 'unknown') AS cluster, coalesce(s.node_id, 'unknown') AS place, "
        "s.cgroup_id AS cgroup_id, max(coalesce(c.pod_name, c.path, '')) AS name, s.window_start_ns AS start_ns, "
        "s.window_end_ns AS end_ns, max(s.p99_off_cpu_ns) AS p99_ns FROM cgroup_schedstat AS s "
        "LEFT JOIN cgroups AS c ON c.cluster_id IS NOT DISTINCT FROM s.cluster_id "
        "AND c.node_id IS NOT DISTINCT FROM s.node_id AND c.cgroup_id = s.cgroup_id "
        f"WHERE {where} AND s.window_start_ns >= {span.start_ns} AND s.window_start_ns < {span.end_ns} "
        "AND s.event_count >= 10 AND s.window_end_ns IS NOT NULL AND s.p99_off_cpu_ns IS NOT NULL "
        "GROUP BY ALL ORDER BY start_ns",
    )
    return {
        place: [Scheduled(row["cgroup_id"], row["name"] or f"cgroup {row['cgroup_id']}",
                          Span(row["start_ns"], row["end_ns"]), row["p99_ns"]) for row in of_place]
        for place, of_place in by_place(found).items()
    }  # fmt: skip


def cgroups(call: Call, where: str) -> dict[Place, frozenset[int]]:
    """The cgroups of processes that call the GPU."""
    found = rows(
        call,
        f"SELECT DISTINCT {NODE}, {whole(AGENT_CGROUP_ID)} AS cgroup_id FROM events "
        f"WHERE {where} AND {GPU} AND contains(attrs_json, '{AGENT_CGROUP_ID}')",
    )
    return {place: frozenset(row["cgroup_id"] for row in of_place) for place, of_place in by_place(found).items()}


def names(call: Call, where: str) -> dict[Place, dict[int, str]]:
    """The names of processes that an agent wrote down."""
    found = rows(call, f"SELECT {NODE}, pid, max(name) AS name FROM process_names WHERE {where} GROUP BY ALL")
    return {place: {row["pid"]: row["name"] for row in of_place} for place, of_place in by_place(found).items()}


def children(call: Call, where: str) -> dict[Place, dict[int, frozenset[int]]]:
    """Which processes each process has started."""
    found = rows(
        call,
        f"SELECT {NODE}, pid, {whole(AGENT_ARG1)} AS child FROM events WHERE {where} AND metric_name = 'process_fork' "
        "AND pid IS NOT NULL",
    )
    started: defaultdict[Place, dict[int, frozenset[int]]] = defaultdict(dict)
    for place, of_place in by_place(found).items():
        for row in of_place:
            if row["child"] is not None:
                started[place][row["pid"]] = started[place].get(row["pid"], frozenset()) | {row["child"]}
    return dict(started)


def cores(call: Call, where: str) -> dict[Place, int]:
    """How many cores a node has, where an agent said it."""
    found = rows(call, f"SELECT {NODE}, max(cpu_cores) AS cores FROM sessions WHERE {where} GROUP BY ALL")
    return {place: of_place[0]["cores"] for place, of_place in by_place(found).items() if of_place[0]["cores"]}
