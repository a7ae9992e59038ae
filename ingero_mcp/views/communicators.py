"""Communicators: who belongs to them, and how far they came."""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.views.collectives import POINT_TO_POINT
from ingero_mcp.views.view import PRIVATE, View, attribute


def _told(key: str) -> str:
    # CASE, not FILTER: what is filtered out of an aggregate would be parsed all the same.
    return f"max_by(CASE WHEN metric_name = '{semconv.COMMUNICATOR}' THEN {attribute(key)} END, timestamp_ns)"


COMMUNICATORS: Final = View(
    "communicators",
    "one row per communicator that an event names",
    (
        ("cluster_id", "cluster"),
        ("job_id", "job"),
        ("comm_id", "communicator"),
        ("nranks", "its size; NULL: nobody said"),
        ("ranks_seen", "number of distinct global ranks with a call or a note of it"),
        ("epochs", "how often it was begun, as far as was seen"),
        ("collectives", "number of calls of collectives"),
        ("transfers", "number of calls of send and receive"),
        ("first_seq", "lowest number of a collective"),
        ("last_seq", "highest number of a collective"),
        ("first_ns", "time of the oldest of its events, Unix ns"),
        ("last_ns", "time of the newest"),
        ("members", "JSON array of global ranks; NULL: nobody said"),
        ("name", "name that the job gave it"),
        ("description", "what the job says it is for"),
    ),
    f"""
    SELECT seen.cluster_id, seen.job_id, seen.comm_id, nranks, ranks_seen, coalesce(epochs, 1) AS epochs, collectives,
           transfers, first_seq, last_seq, first_ns, last_ns, members, name, description
    FROM (
        SELECT cluster_id, job_id, comm_id, max(nranks) AS nranks, count(DISTINCT rank) AS ranks_seen,
               count(coll_seq) FILTER (is_collective) AS collectives,
               count(*) FILTER (metric_name IN {POINT_TO_POINT}) AS transfers,
               min(coll_seq) FILTER (is_collective) AS first_seq, max(coll_seq) FILTER (is_collective) AS last_seq,
               min(timestamp_ns) AS first_ns, max(timestamp_ns) AS last_ns, {_told(semconv.COMM_RANKS)} AS members,
               {_told(semconv.COMM_NAME)} AS name, {_told(semconv.COMM_DESC)} AS description
        FROM (
            SELECT *, metric_name NOT IN {POINT_TO_POINT} AND NOT starts_with(metric_name, 'nccl.') AS is_collective
            FROM main.events WHERE source = 'nccl' AND comm_id IS NOT NULL
        )
        GROUP BY cluster_id, job_id, comm_id
    ) AS seen
    LEFT JOIN (
        SELECT cluster_id, job_id, comm_id, max(epoch) + 1 AS epochs FROM {PRIVATE}.epochs GROUP BY ALL
    ) AS begun
        ON begun.comm_id = seen.comm_id AND begun.cluster_id IS NOT DISTINCT FROM seen.cluster_id
        AND begun.job_id IS NOT DISTINCT FROM seen.job_id
    """,
)
