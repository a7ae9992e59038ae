"""Collectives: what every rank did in them, and who was late.

The calls are rows of events, so a filter by time reads only that time. `collectives` adds what only all ranks of a
collective together tell; it looks them up one collective at a time (LATERAL), so that a filter never cuts away a
rank's peers. A window function would read everything for any filter.
"""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.views.clocks import with_clock
from ingero_mcp.views.view import PRIVATE, View, attribute, whole

POINT_TO_POINT: Final = ("ncclSend", "ncclRecv", "ncclSendRecv")
IS_COLLECTIVE: Final = (
    f"source = 'nccl' AND comm_id IS NOT NULL AND coll_seq IS NOT NULL AND metric_name NOT IN {POINT_TO_POINT} "
    "AND NOT starts_with(metric_name, 'nccl.')"
)
"""Which events are calls of a collective; `nccl.` begins the names of samples and points."""

CALLS: Final = f"{PRIVATE}.calls"
CALLS_SQL: Final = f"""
    SELECT events.*, coalesce(epochs.epoch, 0) AS epoch, coalesce(epochs.attached, false) AS attached,
           CASE WHEN NOT coalesce(epochs.attached, false) THEN 0
                WHEN step IS NOT NULL THEN hash(step, metric_name) END AS alignment
    FROM (SELECT * FROM main.events WHERE {IS_COLLECTIVE}) AS events
    LEFT JOIN {PRIVATE}.epochs AS epochs
        ON epochs.cluster_id = events.cluster_id AND epochs.comm_id = events.comm_id AND epochs.rank = events.rank
        AND epochs.job_id IS NOT DISTINCT FROM events.job_id
        AND epochs.timing_source IS NOT DISTINCT FROM events.timing_source
        AND events.timestamp_ns >= epochs.from_ns AND events.timestamp_ns < epochs.to_ns
    """
"""Calls of collectives with the epoch of their communicator; `attached` where coll_seq counts from an arbitrary moment.
Then it may be compared with that of another such rank only where both say the same step and operation: `alignment` is
what has to be equal, NULL where nobody knows."""

_CALL_COLUMNS: Final = (
    ("cluster_id", "cluster"),
    ("node_id", "node"),
    ("job_id", "job"),
    ("comm_id", "communicator"),
    ("epoch", "how often the communicator was begun anew on this rank before, from 0"),
    ("coll_seq", "n-th collective of the communicator in that epoch"),
    ("metric_name", "the operation: ncclAllReduce, ..."),
    ("rank", "global rank"),
    ("comm_rank", "rank in the communicator"),
    ("enter_ns", "when the rank entered, Unix ns on the clock of its node"),
    ("exit_ns", "when it left, on that clock, or was last seen in it; NULL: nobody knows"),
    ("nranks", "size of the communicator"),
    ("bytes", "size of the local buffer"),
    ("step", "training step"),
    ("cpu_ns", "time on CPU since the thread's previous collective"),
    ("blocked_ns", "time blocked since then"),
    ("runq_ns", "time runnable but waiting for a CPU since then"),
    ("sync_ns", "time inside synchronize calls since then (not in the three)"),
    ("timing_source", "host_api (enqueued, nothing more), host_sync, kernel_gpu or recorder"),
    ("event_seq", "number of the event on its node; its id is node_id:event_seq"),
    ("pid", "process id"),
    ("seq_origin", "init, or attach: coll_seq counts from an arbitrary moment"),
    ("count", "number of elements"),
    ("datatype", "their type"),
    ("unfinished", "true: the call had not ended when it was last seen"),
)

COLLECTIVE_CALLS: Final = View(
    "collective_calls",
    "one row per call of a collective by a rank, without a look at its peers; send and receive are in p2p",
    _CALL_COLUMNS,
    f"""
    SELECT cluster_id, node_id, job_id, comm_id, epoch, coll_seq, metric_name, rank,
           {whole(semconv.NCCL_RANK, "INTEGER")} AS comm_rank, timestamp_ns AS enter_ns,
           TRY(timestamp_ns + duration_ns) AS exit_ns, nranks, bytes, step, cpu_ns, blocked_ns, runq_ns, sync_ns,
           timing_source, event_seq, pid, {attribute(semconv.SEQ_ORIGIN)} AS seq_origin,
           {whole(semconv.NCCL_COUNT)} AS count, {attribute(semconv.NCCL_DATATYPE)} AS datatype,
           coalesce({attribute(semconv.UNFINISHED)} = 'true', false) AS unfinished
    FROM {CALLS}
    """,
)

CLOCKED_CALLS: Final = f"{PRIVATE}.clocked_calls"
CLOCKED_CALLS_SQL: Final = with_clock(f"SELECT * FROM {CALLS}")

# Only what is shown of a call, since all of it is kept while its peers are looked up.
_OWN: Final = f"""
    SELECT cluster_id, job_id, comm_id, epoch, coll_seq, metric_name, rank,
           {whole(semconv.NCCL_RANK, "INTEGER")} AS comm_rank, node_id, event_seq, timestamp_ns, duration_ns, offset_ns,
           clock_bound_ns, alignment, nranks, bytes, cpu_ns, blocked_ns, runq_ns, sync_ns, timing_source, step
    FROM {CLOCKED_CALLS}
    """
# Who took part: the rank, or where that is not known the process. A file that was imported twice counts once.
_PARTICIPANT: Final = (
    "CASE WHEN peer.rank IS NULL THEN -1 - CAST(hash(peer.node_id, peer.pid) >> 2 AS BIGINT) ELSE peer.rank END"
)
# Of the other ranks' entries (all but one's own) only the middle is needed. It lies among the three in the middle of
# all entries: leaving out one that is not above the middle moves it up by one place.
_PEERS: Final = f"""
    SELECT ranks, entries[-1] AS last_ns, entries[(ranks - 1) // 2] AS below_ns, entries[(ranks + 1) // 2] AS middle_ns,
           entries[(ranks + 3) // 2] AS above_ns
    FROM (
        SELECT count(*) AS ranks, list_sort(list(entry_ns)) AS entries
        FROM (
            SELECT min(peer.timestamp_ns - peer.offset_ns) AS entry_ns
            FROM {CLOCKED_CALLS} AS peer
            WHERE peer.comm_id = own.comm_id AND peer.coll_seq = own.coll_seq AND peer.epoch = own.epoch
                AND peer.alignment = own.alignment AND peer.cluster_id IS NOT DISTINCT FROM own.cluster_id
                AND peer.job_id IS NOT DISTINCT FROM own.job_id
            GROUP BY {_PARTICIPANT}
        )
    )
    """
_LOWER: Final = "CASE WHEN below_ns < entry_ns THEN below_ns ELSE middle_ns END"
_UPPER: Final = "CASE WHEN middle_ns < entry_ns THEN middle_ns ELSE above_ns END"
_MEDIAN: Final = f"CASE WHEN ranks % 2 = 0 THEN {_UPPER} ELSE {_LOWER} + ({_UPPER} - {_LOWER}) // 2 END"
_CALL_DOCS: Final = dict(_CALL_COLUMNS)

COLLECTIVES: Final = View(
    "collectives",
    "one row per rank in a collective, with its place among the other ranks; filter by enter_ns. A call whose coll_seq "
    "counts from an arbitrary moment (seq_origin attach) has as peers only others of that kind, of the same step and "
    "operation; without a step it is unaligned: nobody knows its peers",
    (
        *((name, _CALL_DOCS[name]) for name in ("cluster_id", "job_id", "comm_id", "epoch", "coll_seq", "metric_name")),
        *((name, _CALL_DOCS[name]) for name in ("rank", "comm_rank", "node_id", "enter_ns", "exit_ns")),
        ("offset_ns", "how far the clock of the node was ahead, see clocks; 0 where that is not known"),
        (
            "lateness_ns",
            "enter_ns - offset_ns minus the median of the other ranks'; NULL: alone, or unaligned. Below twice the "
            "bound of the clocks it means nothing",
        ),
        ("wait_ns", "from its entry to that of the last rank; NULL: alone, or unaligned"),
        ("is_last", "whether no rank came later; NULL: alone, or unaligned"),
        ("nranks", _CALL_DOCS["nranks"]),
        ("ranks_seen", "how many ranks are known to have entered; NULL: unaligned"),
        ("missing", "nranks - ranks_seen"),
        *((name, _CALL_DOCS[name]) for name in ("bytes", "cpu_ns", "blocked_ns", "runq_ns", "sync_ns")),
        ("timing_source", _CALL_DOCS["timing_source"]),
        ("clock_bound_ns", "offset_ns is right within this; NULL: nobody can say"),
        ("step", _CALL_DOCS["step"]),
        ("id", "node_id:event_seq, to pass back to a tool"),
    ),
    f"""
    SELECT cluster_id, job_id, comm_id, epoch, coll_seq, metric_name, rank, comm_rank, node_id,
           timestamp_ns AS enter_ns, TRY(timestamp_ns + duration_ns) AS exit_ns, offset_ns,
           CASE WHEN in_company THEN entry_ns - ({_MEDIAN}) END AS lateness_ns,
           CASE WHEN in_company THEN greatest(last_ns - entry_ns, 0) END AS wait_ns,
           CASE WHEN in_company THEN entry_ns >= last_ns END AS is_last,
           nranks, CASE WHEN alignment IS NOT NULL THEN ranks END AS ranks_seen,
           CASE WHEN alignment IS NOT NULL THEN nranks - ranks END AS missing,
           bytes, cpu_ns, blocked_ns, runq_ns, sync_ns, timing_source, clock_bound_ns, step,
           node_id || ':' || event_seq AS id
    FROM (
        SELECT own.*, peers.*, own.timestamp_ns - own.offset_ns AS entry_ns, peers.ranks > 1 AS in_company
        FROM ({_OWN}) AS own, LATERAL ({_PEERS}) AS peers
    )
    """,
)
