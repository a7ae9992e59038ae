"""Two simple rules, asked about the same events: what people do when they look at a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp import semconv

Rule = Callable[[Any], int | None]
_NOT_CALLS: Final = ("ncclCommInitRank", "ncclSend", "ncclRecv")


def latest_arriver(events: Any) -> int | None:
    """The rank that most often enters collectives last, by the times as they are written; by how much breaks ties."""
    calls = _collectives(events)
    if not len(calls):
        return None
    rank, enter = _numpy(calls, "rank"), _numpy(calls, "timestamp_ns")
    group = _groups(calls)
    order = np.lexsort((enter, group))
    rank, enter, group = rank[order], enter[order], group[order]
    last = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    first = np.append(0, last[:-1] + 1)
    together = last > first
    last, first = last[together], first[together]
    late = (enter[last] - enter[first]).astype(float)
    often = np.bincount(rank[last], minlength=1) + np.bincount(rank[last], late, 1) / max(1.0, late.sum() + 1)
    return int(often.argmax()) if len(last) else None


def longest_wait(events: Any) -> int | None:
    """The rank with the least time in waits: the one that the others wait for.

    Waits are collectives where the GPU timed them, else synchronize calls.
    """
    calls = _collectives(events.filter(_is(events, "timing_source", semconv.KERNEL_GPU)))
    if not len(calls):
        calls = events.filter(_is(events, "timing_source", semconv.HOST_SYNC))
    calls = calls.filter(pc.and_(calls.column("rank").is_valid(), calls.column("duration_ns").is_valid()))
    if not len(calls):
        return None
    rank, waited = _numpy(calls, "rank"), _numpy(calls, "duration_ns").astype(float)
    total = np.bincount(rank, waited)
    total[np.bincount(rank) == 0] = np.inf
    return int(total.argmin())


RULES: Final[dict[str, Rule]] = {"latest arriver": latest_arriver, "longest wait": longest_wait}


def _collectives(events: Any) -> Any:
    name = events.column("metric_name")
    chosen: Any = pc.and_(_is(events, "source", "nccl"), events.column("coll_seq").is_valid())
    chosen = pc.and_(chosen, pc.invert(pc.is_in(name, pa.array(_NOT_CALLS))))
    chosen = pc.and_(chosen, pc.and_(events.column("comm_id").is_valid(), events.column("rank").is_valid()))
    return events.filter(chosen)


def _is(events: Any, column: str, value: str) -> Any:
    return pc.is_in(events.column(column), pa.array([value]))


def _groups(calls: Any) -> Any:
    comm = np.unique(calls.column("comm_id").to_numpy(), return_inverse=True)[1]
    seq = _numpy(calls, "coll_seq")
    return comm.astype(np.int64) * (int(seq.max()) + 1) + seq


def _numpy(table: Any, column: str) -> Any:
    return table.column(column).to_numpy()


def named(rule: Rule, batches: Sequence[pa.RecordBatch]) -> tuple[int, ...]:
    """The rank that the rule names in these events."""
    rank = rule(pa.Table.from_batches(batches))
    return () if rank is None else (rank,)
