"""A store of ten million events, made by the engine itself: 64 ranks on 8 nodes, half of the events collectives."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb

from ingero_mcp.store import open_store
from ingero_mcp.store.schema import ROWS

EVENTS: Final = 10_000_000
START_NS: Final = 1_796_040_000_000_000_000
NS_PER_EVENT: Final = 7_812
"""The time from one event to the next: 64 collectives each millisecond."""

_RANKS: Final = 64
# Every other event is a collective; each rank has one and then a call of CUDA. Collectives alternate between one
# communicator of all ranks and eight of the ranks with the same place on their node. Rank 5 is late in every 14th.
_SQL: Final = f"""
    INSERT INTO {ROWS} BY NAME
    SELECT 'bench' AS cluster_id, 'node-' || rank // 8 AS node_id, 'job' AS job_id, number AS event_seq,
           {START_NS} + turn * {2 * _RANKS * NS_PER_EVENT} + CAST(hash(number) % 50_000 AS BIGINT)
               + CASE WHEN rank = 5 AND turn % 14 = 0 THEN 290_000 ELSE 0 END AS timestamp_ns,
           50_000 AS duration_ns, CASE WHEN is_call THEN 'nccl' ELSE 'cuda' END AS source,
           CASE WHEN NOT is_call THEN 'cudaLaunchKernel' WHEN is_world THEN 'ncclAllReduce' ELSE 'ncclAllGather' END
               AS metric_name,
           CAST(rank AS INTEGER) AS rank, CAST(rank % 8 AS INTEGER) AS local_rank,
           CASE WHEN is_call AND is_world THEN {_RANKS} WHEN is_call THEN 8 END AS nranks, {_RANKS} AS world_size,
           'GPU-' || rank AS gpu_uuid, 4_100 + rank AS pid, 4_100 + rank AS tid, 'python3' AS process,
           CASE WHEN is_call AND is_world THEN '00000000000000ff' WHEN is_call THEN printf('%016x', rank % 8) END
               AS comm_id,
           CASE WHEN is_call THEN turn // 2 END AS coll_seq, turn // 20 AS step, 4_194_304 AS bytes,
           CAST(hash(number + 1) % 1_000_000 AS BIGINT) AS cpu_ns, 0 AS blocked_ns, 0 AS runq_ns, 0 AS sync_ns,
           'host_api' AS timing_source, md5(CAST(turn AS VARCHAR)) AS trace_id, printf('%016x', number) AS span_id,
           CASE WHEN is_call THEN '{{"nccl.op_type":"ncclAllReduce","nccl.rank":' || rank || ',"nccl.count":1048576,'
               || '"nccl.datatype":"float32","nccl.reduce_op":"sum","cuda.stream":7,"ingero.seq_origin":"init"}}'
               ELSE '{{"cuda.stream":7}}' END AS attrs_json
    FROM (
        SELECT number, number % 2 = 0 AS is_call, number // 2 % {_RANKS} AS rank, number // {2 * _RANKS} AS turn,
               turn % 2 = 0 AS is_world
        FROM range({EVENTS}) AS numbers(number)
    )
    """


def make(path: Path) -> None:
    """Make it at `path`, in time order as events arrive."""
    open_store(path).close()
    with duckdb.connect(str(path), config={"threads": 2}) as connection:
        connection.execute(_SQL)
