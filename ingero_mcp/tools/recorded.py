"""Reading the single events of a job that mean something: dumps, open calls, exits, faults, counters, gaps."""

from __future__ import annotations

import json
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.analysis.counters import THROTTLE
from ingero_mcp.analysis.evidence import Communicator, Counter, Dump, Entry, Gap, Progress, Sign
from ingero_mcp.analysis.frontier import COMPLETED
from ingero_mcp.analysis.retransmits import NAMES as RETRANSMITS
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.jobs import RANKED, Job
from ingero_mcp.tools.scope import as_sql, equal
from ingero_mcp.views.view import attribute, whole
from ingero_mcp.windows import Window

_MAX_BYTES: Final = 200 << 20
_SIGNS: Final = (semconv.PROCESS_EXIT, "gpu.xid", "oom.kill", "clock.step")
_COUNTERS: Final = ("gpu.clock.sm_mhz", "gpu.power.draw_w")
_PARTS: Final = 4000
_MOST_SIGNS: Final = 20_000
_MOST_OPEN: Final = 20_000


def _rows(call: Call, sql: str) -> list[tuple[Any, ...]]:
    """All rows; QueryError rather than some of them, since a rank that is left out would look silent."""
    return list(zip(*(column.to_pylist() for column in call.table(sql, _MAX_BYTES).columns), strict=True))


def members(call: Call, where: str) -> dict[str, Communicator]:
    """The communicators whose members some rank's recorder named, by id."""
    rows = _rows(
        call,
        f"SELECT comm_id, max(nranks) AS nranks, arg_max({attribute(semconv.COMM_RANKS)}, "
        f"len({attribute(semconv.COMM_RANKS)})) AS ranks, max({attribute(semconv.COMM_NAME)}) AS name, "
        f"max({attribute(semconv.COMM_DESC)}) AS described FROM events WHERE {where} "
        f"AND metric_name = '{semconv.COMMUNICATOR}' AND comm_id IS NOT NULL GROUP BY comm_id ORDER BY comm_id",
    )
    found = {}
    for comm_id, nranks, ranks, name, described in rows:
        named = _ranks(ranks)
        found[comm_id] = Communicator(comm_id, max(nranks or 0, len(named)), named, name or "", described or "")
    return found


def _ranks(text: str | None) -> tuple[int, ...]:
    try:
        listed = json.loads(text or "")
    except (ValueError, RecursionError):
        return ()
    if not isinstance(listed, list):
        return ()
    return tuple(sorted({rank for rank in listed if type(rank) is int and rank >= 0}))


def progress(call: Call, where: str) -> tuple[Progress, ...]:
    """How far every rank had come in every communicator, where its recorder says it."""
    rows = _rows(
        call,
        f"SELECT rank, comm_id, max({whole(semconv.COMM_LAST_ENQUEUED)}) AS enqueued, "
        f"max({whole(semconv.COMM_LAST_COMPLETED)}) AS completed FROM events WHERE {where} AND {RANKED} "
        f"AND metric_name = '{semconv.COMMUNICATOR}' AND comm_id IS NOT NULL GROUP BY rank, comm_id ORDER BY ALL",
    )
    return tuple(Progress(*row) for row in rows)


def dumps(call: Call, where: str) -> tuple[Dump, ...]:
    """The dump of each rank; of several the one with most entries."""
    rows = _rows(
        call,
        f"SELECT rank, max({whole(semconv.RECORDER_ENTRIES)}) AS entries, "
        f"max({whole(semconv.RECORDER_OPEN)}) AS still_open, min(id) AS first FROM events "
        f"WHERE {where} AND {RANKED} AND metric_name = '{semconv.RECORDER_DUMP}' GROUP BY rank ORDER BY rank",
    )
    return tuple(Dump(rank, entries, still_open, event_id or "") for rank, entries, still_open, event_id in rows)


def entries(call: Call, where: str) -> tuple[Entry, ...]:
    """What recorders dumped: collectives with their state; sends and receives are left out.

    A ring may hold thousands of them per rank. Read are those that say where a rank stands (its last one, and the last
    that ended, in each communicator) and all at a position that has not ended on every rank.
    """
    rows = _rows(
        call,
        "SELECT rank, comm_id, coll_seq, metric_name, elements, datatype, state, timestamp_ns, id FROM ("
        "SELECT *, max(coll_seq) OVER mine AS last, "
        f"max(CASE WHEN state = '{COMPLETED}' THEN coll_seq END) OVER mine AS last_ended, "
        f"bool_or(state <> '{COMPLETED}') OVER (PARTITION BY comm_id, coll_seq) AS is_open FROM ("
        f"SELECT rank, comm_id, coll_seq, metric_name, {whole(semconv.NCCL_COUNT)} AS elements, "
        f"{attribute(semconv.NCCL_DATATYPE)} AS datatype, "
        f"coalesce({attribute(semconv.NCCL_STATE)}, 'scheduled') AS state, timestamp_ns, coalesce(id, '') AS id "
        f"FROM events WHERE {where} AND {RANKED} AND timing_source = '{semconv.RECORDER}' AND comm_id IS NOT NULL "
        "AND coll_seq IS NOT NULL AND metric_name NOT IN ('ncclSend', 'ncclRecv', 'ncclSendRecv') "
        f"AND metric_name <> '{semconv.COMMUNICATOR}') WINDOW mine AS (PARTITION BY rank, comm_id)) "
        "WHERE is_open OR coll_seq = last OR coll_seq = last_ended ORDER BY rank, comm_id, coll_seq",
    )
    return tuple(Entry(*row) for row in rows)


def signs(call: Call, job: Job, window: Window) -> tuple[Sign, ...]:
    """Open calls, exits, GPU faults, hang flags, retransmits: of the job, or of no job on its cluster.

    Of the flags of a rank only the latest counts; of the others the latest are kept, where there are very many.
    """
    mine, names = _of_job_or_host(job, window), ", ".join(map(as_sql, _SIGNS))
    found = "metric_name, rank, node_id, pid, at_ns, value, detail, event_id"
    shown = (
        "metric_name, rank, coalesce(node_id, 'unknown') AS node_id, pid, timestamp_ns AS at_ns, "
        f"value_double AS value, coalesce({attribute('gpu.xid.code')}, '') AS detail, id AS event_id"
    )
    flags = (
        f"SELECT {found} FROM (SELECT {shown}, row_number() OVER (PARTITION BY rank ORDER BY timestamp_ns DESC) "
        f"AS place FROM events WHERE {mine} AND {RANKED} AND metric_name = '{semconv.HANG_FLAG}') WHERE place = 1"
    )
    single = (
        f"SELECT {found} FROM (SELECT {shown} FROM events WHERE {mine} AND metric_name IN ({names}) "
        f"ORDER BY timestamp_ns DESC LIMIT {_MOST_SIGNS})"
    )
    opened = (
        f"SELECT metric_name, rank, coalesce(node_id, 'unknown') AS node_id, pid, "
        f"coalesce({whole(semconv.CALL_LAST_SEEN_NS)}, timestamp_ns) AS at_ns, value_double AS value, "
        f"coalesce({attribute(semconv.CALL_NAME)}, '') AS detail, id AS event_id FROM events "
        f"WHERE {mine} AND metric_name = '{semconv.CALL_OPEN}' ORDER BY at_ns DESC LIMIT {_MOST_OPEN}"
    )
    rows = [row for sql in (flags, single, opened) for row in _rows(call, sql)]
    rows.sort(key=lambda row: int(row[4]))
    return _retransmits(call, job, window) + tuple(
        Sign(name, _rank(rank), node, pid, at_ns, value, detail, event_id or "")
        for name, rank, node, pid, at_ns, value, detail, event_id in rows
    )


def _rank(rank: int | None) -> int | None:
    return rank if rank is not None and rank >= 0 else None


def _retransmits(call: Call, job: Job, window: Window) -> tuple[Sign, ...]:
    """Retransmits, counted: there may be very many, so a node has at most some thousand signs, each of a short time."""
    names = ", ".join(map(as_sql, RETRANSMITS))
    rows = _rows(
        call,
        "SELECT coalesce(node_id, 'unknown') AS node, min(timestamp_ns) AS first_ns, count(*) AS many, "
        "min(id) AS first FROM (SELECT node_id, timestamp_ns, id, "
        "(timestamp_ns - min(timestamp_ns) OVER ()) // greatest((max(timestamp_ns) OVER () - min(timestamp_ns) "
        f"OVER ()) // {_PARTS}, 1) AS part FROM events WHERE {_of_job_or_host(job, window)} "
        f"AND metric_name IN ({names})) GROUP BY node_id, part ORDER BY first_ns",
    )
    return tuple(
        Sign(RETRANSMITS[0], None, node, None, at, float(many), "", event_id or "") for node, at, many, event_id in rows
    )


def counters(call: Call, job: Job, window: Window) -> tuple[Counter, ...]:
    """GPU clocks, power and throttle flags, the median of each GPU or rank."""
    names = ", ".join(map(as_sql, _COUNTERS))
    rows = _rows(
        call,
        "SELECT metric_name, rank, coalesce(node_id, 'unknown') AS node, gpu_uuid, median(value_double) AS median, "
        f"count(*) AS samples FROM events WHERE {_of_job_or_host(job, window)} "
        f"AND (metric_name IN ({names}) OR starts_with(metric_name, '{THROTTLE}')) "
        "AND isfinite(value_double) GROUP BY metric_name, rank, node_id, gpu_uuid",
    )
    return tuple(Counter(name, _rank(rank), *rest) for name, rank, *rest in rows)


def gaps(call: Call, job: Job, window: Window) -> tuple[Gap, ...]:
    """What the nodes of the job's cluster lost."""
    rows = _rows(
        call,
        f"SELECT coalesce(node_id, 'unknown') AS node, coalesce({whole(semconv.LOST_EVENTS)}, 0) AS lost, "
        f"coalesce({whole(semconv.GAP_START_NS)}, timestamp_ns) AS start_ns, "
        f"coalesce({whole(semconv.GAP_END_NS)}, timestamp_ns) AS end_ns FROM events "
        f"WHERE {_of_job_or_host(job, window)} AND metric_name = '{semconv.PROBE_GAP}' ORDER BY timestamp_ns",
    )
    return tuple(Gap(*row) for row in rows)


def _of_job_or_host(job: Job, window: Window) -> str:
    # What a node says about itself (a GPU's clock, a fault) belongs to no job.
    mine = "job_id IS NULL" if job.job_id is None else f"(job_id IS NULL OR {equal('job_id', job.job_id)})"
    return f"{job.in_cluster} AND {mine} AND timestamp_ns >= {window.start_ns} AND timestamp_ns < {window.end_ns}"
