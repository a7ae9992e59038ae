"""Reading the evidence of a job: the tables that the analysis needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp import semconv
from ingero_mcp.analysis.assemble import calls_of, column, with_synchronizes
from ingero_mcp.analysis.calls import UNKNOWN, Calls, Int64s
from ingero_mcp.analysis.evidence import Communicator, Dump, Entry, Evidence, Place, Sends, Timing, Work
from ingero_mcp.analysis.frontier import COMPLETED
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.jobs import MAX_RANK, RANKED, Job
from ingero_mcp.tools.recorded import counters, dumps, entries, gaps, members, progress, signs
from ingero_mcp.tools.scope import as_sql, equal
from ingero_mcp.views.view import attribute, whole
from ingero_mcp.windows import Window

_MAX_BYTES: Final = 400 << 20
_DENSE: Final = 16_000_000  # so many pairs of communicator and rank are marked in an array, more are sorted
_POINT_TO_POINT: Final = ("ncclSend", "ncclRecv", "ncclSendRecv")
_SYNCHRONIZES: Final = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def read_evidence(call: Call, job: Job, window: Window, comm_id: str | None = None) -> Evidence:
    """Everything about the job in the window; with `comm_id` only collectives of that communicator."""
    in_comm = "" if comm_id is None else f" AND {equal('comm_id', comm_id)}"
    where, always = job.where(window), job.where(None)
    shape = _Shape.of(call, where, comm_id)
    table = _collectives(call, job, window, shape.timing, in_comm)
    calls = calls_of(table, shape.clock_of_rank, kernel=shape.timing == semconv.KERNEL_GPU)
    if shape.timing == semconv.HOST_API:
        calls = with_synchronizes(calls, _synchronizes(call, where))
    dumped = dumps(call, where)
    recorded = entries(call, where + in_comm) if dumped or shape.timing == semconv.RECORDER else ()
    return Evidence(
        cluster_id=job.cluster_id or semconv.UNKNOWN,
        job_id=job.job_id,
        window=window,
        newest_ns=_newest_ns(call, window),
        timing=shape.timing,
        world_size=shape.world_size,
        calls=calls,
        event_seqs=column(table, "event_seq"),
        sends=_sends(call, where + in_comm, shape),
        work=_work(call, where),
        places=shape.places,
        stages=_stages(call, where),
        communicators=_communicators(calls, shape, members(call, always + in_comm)),
        attached=_attached(call, where + in_comm),
        moved=shape.moved,
        entries=recorded,
        # What a communicator is, and how far it had come, is written when it is dumped: with the dump or not at all.
        progress=progress(call, where + in_comm) if dumped else (),
        dumps=dumped if comm_id is None else _of_comm(dumped, recorded),
        signs=signs(call, job, window),
        counters=counters(call, job, window),
        gaps=gaps(call, job, window),
        notes=shape.notes,
    )


def _of_comm(dumped: tuple[Dump, ...], recorded: tuple[Entry, ...]) -> tuple[Dump, ...]:
    """The dumps, with what is open in the one communicator whose entries are given."""
    still_open = Counter(entry.rank for entry in recorded if entry.state != COMPLETED)
    return tuple(replace(dump, open=still_open[dump.rank]) for dump in dumped)


def _newest_ns(call: Call, window: Window) -> int:
    """When the newest event of the window ended, whatever it was and of whatever job."""
    newest = call.read(
        "SELECT max(coalesce(TRY(timestamp_ns + duration_ns), timestamp_ns)) FROM events "
        f"WHERE timestamp_ns >= {window.start_ns} AND timestamp_ns < {window.end_ns}"
    ).rows[0][0]
    return newest if isinstance(newest, int) else window.end_ns


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a job consists of, from one pass over its collectives."""

    timing: Timing
    world_size: int | None
    places: dict[int, Place]
    clock_of_rank: dict[int, int]
    nranks: dict[str, int]
    moved: frozenset[int]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, call: Call, where: str, comm_id: str | None) -> _Shape:
        table = call.table(
            "SELECT rank, node_id, pid, max(gpu_uuid) AS gpu, timing_source, comm_id, max(nranks) AS nranks, "
            "max(world_size) AS world_size, count(*) AS calls, max(timestamp_ns) AS last FROM events "
            f"WHERE {where} AND (source = 'nccl' OR metric_name IN ('{semconv.COMPUTE}', '{semconv.HANG_FLAG}')) "
            "GROUP BY rank, node_id, pid, timing_source, comm_id ORDER BY last",
            _MAX_BYTES,
        ).to_pylist()
        ranked = [row for row in table if row["rank"] is not None and 0 <= row["rank"] <= MAX_RANK]
        places = {
            row["rank"]: Place(row["node_id"], row["pid"], row["gpu"]) for row in ranked
        }  # in order of time: where a rank was last
        moved = frozenset(row["rank"] for row in ranked if row["node_id"] != places[row["rank"]].node_id)
        without = sum(row["calls"] for row in table) - sum(row["calls"] for row in ranked)
        notes = (f"{without} events of collectives do not say their rank and were left out",) if without else ()
        sizes = [row["world_size"] for row in ranked if row["world_size"] is not None]
        nranks: dict[str, int] = {}
        for row in table:
            if row["comm_id"] is not None and row["nranks"] is not None:
                nranks[row["comm_id"]] = max(nranks.get(row["comm_id"], 0), row["nranks"])
        of_comm = [row for row in ranked if comm_id is None or row["comm_id"] == comm_id]
        return cls(_timing(of_comm), max(sizes, default=None), places, _clocks(places), nranks, moved, notes)


def _timing(rows: list[dict[str, Any]]) -> Timing:
    """The timing source of most collectives."""
    count: dict[Timing, int] = {"kernel_gpu": 0, "host_sync": 0, "host_api": 0, "recorder": 0}
    for row in rows:
        if row["timing_source"] in count and row["comm_id"] is not None:
            count[row["timing_source"]] += row["calls"]
    best = max(count, key=lambda one: count[one])
    if count[best] == 0 and any(row["timing_source"] == semconv.KERNEL_GPU for row in rows):
        return "kernel_gpu"
    return best if count[best] else "none"


def _clocks(places: dict[int, Place]) -> dict[int, int]:
    """A number for the clock of each rank: that of its node; where nodes are not known each rank has its own."""
    nodes = sorted(
        {place.node_id for place in places.values() if place.node_id not in (None, semconv.UNKNOWN)}, key=str
    )
    number = {node: place for place, node in enumerate(nodes)}
    return {
        rank: number.get(place.node_id or semconv.UNKNOWN, len(nodes) + position)
        for position, (rank, place) in enumerate(places.items())
    }


def _collectives(call: Call, job: Job, window: Window, timing: Timing, in_comm: str) -> pa.Table:
    where = job.where(None)
    source = "" if timing == "none" else f" AND timing_source = '{timing}'"
    return call.table(
        "SELECT comm_id, epoch, coll_seq, metric_name, rank, enter_ns, exit_ns, bytes, step, "
        "TRY(cpu_ns + blocked_ns + runq_ns) AS own_ns, sync_ns, event_seq FROM collective_calls "
        f"WHERE {where} AND enter_ns >= {window.start_ns} AND enter_ns < {window.end_ns} AND {RANKED}{source}"
        f"{in_comm}",
        _MAX_BYTES,
    )


def _attached(call: Call, where: str) -> frozenset[tuple[str, int]]:
    table = call.table(
        f"SELECT DISTINCT comm_id, rank FROM events WHERE {where} AND comm_id IS NOT NULL AND {RANKED} "
        "AND contains(attrs_json, 'attach') "
        f"AND {attribute(semconv.SEQ_ORIGIN)} = 'attach'",
        _MAX_BYTES,
    )
    return frozenset(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _synchronizes(call: Call, where: str) -> pa.Table:
    names = ", ".join(map(as_sql, _SYNCHRONIZES))
    return call.table(
        "SELECT rank, timestamp_ns AS start_ns, TRY(timestamp_ns + duration_ns) AS end_ns FROM events "
        f"WHERE {where} AND metric_name IN ({names}) AND {RANKED} AND duration_ns IS NOT NULL "
        f"AND timing_source = '{semconv.HOST_SYNC}'",
        _MAX_BYTES,
    )


def _sends(call: Call, where: str, shape: _Shape) -> Sends:
    names = ", ".join(map(as_sql, _POINT_TO_POINT))
    table = call.table(
        "SELECT comm_id, 0 AS epoch, coalesce(coll_seq, -1) AS coll_seq, metric_name, rank, timestamp_ns AS enter_ns, "
        "TRY(timestamp_ns + duration_ns) AS exit_ns, bytes, step, CAST(NULL AS BIGINT) AS own_ns, "
        "CAST(NULL AS BIGINT) AS sync_ns, event_seq, "
        f"{whole(semconv.NCCL_RANK)} AS own_place, {whole(semconv.NCCL_PEER_RANK)} AS peer_place "
        f"FROM events WHERE {where} AND metric_name IN ({names}) AND {RANKED} AND comm_id IS NOT NULL",
        _MAX_BYTES,
    )
    is_send = np.asarray(pc.equal(table.column("metric_name"), pa.scalar("ncclSend")).to_numpy()).astype(np.int64)
    own, peer = column(table, "own_place"), column(table, "peer_place")
    comm = table.column("comm_id").combine_chunks().dictionary_encode()
    code = np.asarray(comm.indices.to_numpy()).astype(np.int64)
    # Many sends of one pair share a number with those of another: the pair is part of the communicator's name.
    source, destination = np.where(is_send == 1, own, peer), np.where(is_send == 1, peer, own)
    pairs, number = np.unique(np.stack([code, source, destination]), axis=1, return_inverse=True)
    comm_ids = comm.dictionary.to_pylist()
    named = pa.array([f"{comm_ids[code]} {a} {b}" for code, a, b in pairs.T.tolist()], pa.string())
    paired = table.set_column(
        table.schema.get_field_index("comm_id"),
        "comm_id",
        pa.chunked_array([pa.DictionaryArray.from_arrays(number.ravel(), named).cast(pa.string())]),
    )
    calls = calls_of(paired, shape.clock_of_rank, kernel=shape.timing == semconv.KERNEL_GPU)
    peers = _rank_at(code, own, column(table, "rank"), peer)
    return Sends(calls, peers[calls.row], is_send[calls.row])


def _rank_at(code: Int64s, own: Int64s, rank: Int64s, peer: Int64s) -> Int64s:
    """The global rank at a place of a communicator, by what its own sends and receives say; -1 if it made none."""
    if not len(rank):
        return rank
    places = np.stack([np.append(code, code), np.append(own, peer)])
    _, number = np.unique(places, axis=1, return_inverse=True)
    number = number.ravel()
    known = np.full(int(number.max()) + 1, UNKNOWN, dtype=np.int64)
    known[number[: len(own)]] = np.where(own == UNKNOWN, UNKNOWN, rank)
    return known[number[len(own) :]]


def _work(call: Call, where: str) -> Work | None:
    # The optimizer sums up the gradient norm over all ranks: it waits for the last of them.
    table = call.table(
        "SELECT rank, step, timestamp_ns AS start_ns, TRY(timestamp_ns + duration_ns) AS end_ns, "
        f"CAST(coalesce(starts_with({attribute(semconv.OP_TYPE)}, 'optimizer'), false) "
        f"AS INTEGER) AS is_wait FROM events WHERE {where} AND metric_name = '{semconv.COMPUTE}' "
        f"AND {RANKED} AND duration_ns IS NOT NULL",
        _MAX_BYTES,
    )
    if not len(table):
        return None
    rank, step, start_ns, end_ns = (column(table, name) for name in ("rank", "step", "start_ns", "end_ns"))
    return Work(rank, step, start_ns, end_ns, column(table, "is_wait") == 1)


def _stages(call: Call, where: str) -> dict[int, int]:
    table = call.table(
        f"SELECT rank, min({whole(semconv.STAGE)}) AS stage "
        f"FROM events WHERE {where} AND metric_name = '{semconv.COMPUTE}' AND {RANKED} GROUP BY rank",
        _MAX_BYTES,
    ).to_pylist()
    return {row["rank"]: row["stage"] for row in table if row["stage"] is not None}


def _communicators(calls: Calls, shape: _Shape, known: dict[str, Communicator]) -> dict[str, Communicator]:
    found = dict(known)
    for comm_id, seen in _members(calls).items():
        before = found.get(comm_id, Communicator(comm_id, 0, ()))
        size = max(shape.nranks.get(comm_id, 0), len(seen), before.nranks)
        both = before.members if len(before.members) >= len(seen) else tuple(sorted({*before.members, *seen}))
        found[comm_id] = replace(before, nranks=size, members=both)
    return found


def _members(calls: Calls) -> dict[str, tuple[int, ...]]:
    """The ranks that were seen in each communicator."""
    if not len(calls):
        return {}
    ranks = int(calls.rank.max()) + 1
    key = calls.comm * ranks + calls.rank
    size = len(calls.comm_ids) * ranks
    if size <= _DENSE:
        is_seen = np.zeros(size, dtype=np.bool_)
        is_seen[key] = True
        pairs = np.flatnonzero(is_seen)
    else:
        pairs = np.unique(key)
    seen: dict[str, set[int]] = {}
    for comm, rank in zip((pairs // ranks).tolist(), (pairs % ranks).tolist(), strict=True):
        seen.setdefault(calls.comm_ids[comm], set()).add(rank)
    return {comm_id: tuple(sorted(members)) for comm_id, members in seen.items()}
