"""How long explain_stall takes: in a store of ten million events, and for 512 ranks over 2,000 steps."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from bench import large
from bench.figure import Figure, measure, seconds
from ingero_mcp.store import Store, open_store
from ingero_mcp.store.schema import ROWS
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import ExplainStall, explain_stall

_WINDOW_EVENTS: Final = 1_000_000
_RANKS: Final = 512
_STEPS: Final = 2_000
# One all-reduce of all ranks in each step of 100 ms, and the synchronize that waits for it; rank 77 is 40 ms late in
# every 14th step.
_WIDE: Final = f"""
    INSERT INTO {ROWS} BY NAME
    SELECT 'wide' AS cluster_id, 'node-' || rank // 8 AS node_id, 'wide-job' AS job_id,
           2 * number + is_wait AS event_seq, enter_ns + is_wait * 30_000 AS timestamp_ns,
           CASE WHEN is_wait = 1 THEN end_ns - enter_ns - 30_000 ELSE 12_000 END AS duration_ns,
           CASE WHEN is_wait = 1 THEN 'cuda' ELSE 'nccl' END AS source,
           CASE WHEN is_wait = 1 THEN 'cudaStreamSynchronize' ELSE 'ncclAllReduce' END AS metric_name,
           CAST(rank AS INTEGER) AS rank, {_RANKS} AS nranks, {_RANKS} AS world_size, 4_100 + rank AS pid,
           CASE WHEN is_wait = 0 THEN '00000000000000ff' END AS comm_id,
           CASE WHEN is_wait = 0 THEN step END AS coll_seq, step, 4_194_304 AS bytes,
           CASE WHEN is_wait = 0 THEN work_ns END AS cpu_ns, CASE WHEN is_wait = 0 THEN 0 END AS blocked_ns,
           CASE WHEN is_wait = 0 THEN 0 END AS runq_ns, CASE WHEN is_wait = 0 THEN 0 END AS sync_ns,
           CASE WHEN is_wait = 1 THEN 'host_sync' ELSE 'host_api' END AS timing_source, '{{}}' AS attrs_json
    FROM (
        SELECT number, rank, step, work_ns, {large.START_NS} + step * 140_000_000 + work_ns AS enter_ns,
               {large.START_NS} + step * 140_000_000 + 130_000_000 + CAST(hash(number + 7) % 20_000 AS BIGINT) AS end_ns
        FROM (
            SELECT number, number % {_RANKS} AS rank, number // {_RANKS} AS step,
                   80_000_000 + CAST(hash(number) % 2_000_000 AS BIGINT)
                       + CASE WHEN number % {_RANKS} = 77 AND number // {_RANKS} % 14 = 3 THEN 40_000_000 ELSE 0 END
                       AS work_ns
            FROM range({_RANKS * _STEPS}) AS numbers(number)
        )
    ), (VALUES (0), (1)) AS kinds(is_wait)
    """


def figures() -> Iterator[Figure]:
    """Seconds of one call, and the memory of the process after it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.duckdb"
        large.make(path)
        first = large.START_NS + 4_000_000 * large.NS_PER_EVENT
        window = f"{first}-{first + _WINDOW_EVENTS * large.NS_PER_EVENT}"
        with open_store(path, read_only=True) as store:
            yield _explained("explain_stall, 1 of 10 million events", store, window)
        path = Path(folder) / "wide.duckdb"
        open_store(path).close()
        with duckdb.connect(str(path), config={"threads": 2}) as connection:
            connection.execute(_WIDE)
        with open_store(path, read_only=True) as store:
            yield _explained(f"explain_stall, {_RANKS} ranks x {_STEPS:,} steps", store, None)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Figure("peak memory of the process, all of the above", peak_mib, "MiB", peak_mib, peak_mib)


def _explained(name: str, store: Store, window: str | None) -> Figure:
    def once() -> float:
        return seconds(lambda: explain_stall(Call(store, None), ExplainStall(window=window)))

    once()
    return measure(name, "s", once, repetitions=3)
