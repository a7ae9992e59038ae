"""Sends and receives, paired: one row for the two ends of one transfer."""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.views.view import PRIVATE, View, whole

P2P_CALLS: Final = f"{PRIVATE}.p2p_calls"
P2P_CALLS_SQL: Final = f"""
    SELECT cluster_id, job_id, comm_id, coll_seq, node_id, rank, timestamp_ns, duration_ns, bytes, step, timing_source,
           is_send, CASE WHEN is_send THEN own_place ELSE peer_place END AS src_place,
           CASE WHEN is_send THEN peer_place ELSE own_place END AS dst_place
    FROM (
        SELECT *, metric_name = 'ncclSend' AS is_send, {whole(semconv.NCCL_PEER_RANK, "INTEGER")} AS peer_place,
               coalesce({whole(semconv.NCCL_RANK, "INTEGER")}, CASE WHEN nranks = world_size THEN rank END) AS own_place
        FROM main.events
        WHERE source = 'nccl' AND metric_name IN ('ncclSend', 'ncclRecv') AND comm_id IS NOT NULL
            AND coll_seq IS NOT NULL
    )
    """
"""Both ends with the places of source and destination in their communicator; the peer is named by its place."""

_SAME: Final = """
    peer.comm_id = own.comm_id AND peer.coll_seq = own.coll_seq AND peer.src_place = own.src_place
    AND peer.dst_place = own.dst_place AND peer.cluster_id IS NOT DISTINCT FROM own.cluster_id
    AND peer.job_id IS NOT DISTINCT FROM own.job_id AND peer.timing_source IS NOT DISTINCT FROM own.timing_source
    """
# A communicator that was begun anew counts from 0 again: then the second send of a number belongs to the second
# receive of it.
_SENDS: Final = f"""
    SELECT own.*, receives[list_position(sent, own.timestamp_ns)] AS received
    FROM (SELECT * FROM {P2P_CALLS} WHERE is_send) AS own, LATERAL (
        SELECT list_sort(list(DISTINCT peer.timestamp_ns) FILTER (peer.is_send)) AS sent,
               list_sort(list(DISTINCT {{
                   'enter_ns': peer.timestamp_ns, 'duration_ns': peer.duration_ns, 'node_id': peer.node_id,
                   'rank': peer.rank, 'bytes': peer.bytes, 'step': peer.step
               }}) FILTER (NOT peer.is_send)) AS receives
        FROM {P2P_CALLS} AS peer WHERE {_SAME}
    )
    """
_LONE_RECEIVES: Final = f"""
    SELECT own.*
    FROM (SELECT * FROM {P2P_CALLS} WHERE NOT is_send) AS own, LATERAL (
        SELECT list_sort(list(DISTINCT peer.timestamp_ns) FILTER (NOT peer.is_send)) AS received,
               count(DISTINCT peer.timestamp_ns) FILTER (peer.is_send) AS sends
        FROM {P2P_CALLS} AS peer WHERE {_SAME}
    )
    WHERE coalesce(list_position(received, own.timestamp_ns) > sends, true)
    """

P2P: Final = View(
    "p2p",
    "one row per send with the receive that belongs to it, and per receive without a send; filter by enter_ns. Calls "
    "of which nobody knows whether they send or receive (ncclSendRecv) are only in events",
    (
        ("cluster_id", "cluster"),
        ("job_id", "job"),
        ("comm_id", "communicator"),
        ("coll_seq", "n-th transfer from this source to this destination"),
        ("src_rank", "global rank of the source; NULL: its side was not seen"),
        ("dst_rank", "global rank of the destination; NULL: its side was not seen"),
        ("src_comm_rank", "rank of the source in the communicator"),
        ("dst_comm_rank", "rank of the destination in the communicator"),
        ("send_node_id", "node of the source"),
        ("recv_node_id", "node of the destination"),
        ("enter_ns", "when the sender entered, or where its side is missing the receiver; Unix ns on its own clock"),
        ("send_enter_ns", "when the sender entered, on its clock; NULL: that side is missing"),
        ("send_exit_ns", "when it left"),
        ("recv_enter_ns", "when the receiver entered, on its clock; NULL: that side is missing"),
        ("recv_exit_ns", "when it left"),
        ("bytes", "size"),
        ("step", "training step"),
        ("timing_source", "host_api (enqueued, nothing more), host_sync, kernel_gpu or recorder"),
    ),
    f"""
    SELECT cluster_id, job_id, comm_id, coll_seq, rank AS src_rank, received.rank AS dst_rank,
           src_place AS src_comm_rank, dst_place AS dst_comm_rank, node_id AS send_node_id,
           received.node_id AS recv_node_id, timestamp_ns AS enter_ns, timestamp_ns AS send_enter_ns,
           timestamp_ns + duration_ns AS send_exit_ns, received.enter_ns AS recv_enter_ns,
           received.enter_ns + received.duration_ns AS recv_exit_ns, coalesce(bytes, received.bytes) AS bytes,
           coalesce(step, received.step) AS step, timing_source
    FROM ({_SENDS})
    UNION ALL
    SELECT cluster_id, job_id, comm_id, coll_seq, NULL, rank, src_place, dst_place, NULL, node_id, timestamp_ns, NULL,
           NULL, timestamp_ns, timestamp_ns + duration_ns, bytes, step, timing_source
    FROM ({_LONE_RECEIVES})
    """,
)
