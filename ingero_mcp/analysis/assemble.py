"""Tables of events become calls: a collective gets the same number on every rank, and an end where one is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp.analysis.calls import UNKNOWN, Bools, Calls, Int64s

_SPARSE: Final = 4  # a table of all numbers may be so much larger than the calls before sorting is cheaper


def calls_of(table: pa.Table, clock_of_rank: dict[int, int], *, kernel: bool) -> Calls:
    """The calls of a table of collectives, one per rank and collective; of a call that was recorded twice the first.

    Columns: comm_id, epoch, coll_seq, metric_name, rank, enter_ns, exit_ns, bytes, step, own_ns, sync_ns. With `kernel`
    the calls were timed on the GPU, and their ends are the ends of the collectives.
    """
    comm, comm_ids = _communicators(table)
    op, ops = _codes(table.column("metric_name"))
    seq, rank = column(table, "coll_seq"), column(table, "rank")
    enter_ns, exit_ns = column(table, "enter_ns"), column(table, "exit_ns")
    unknown = np.full(len(rank), UNKNOWN, dtype=np.int64)
    ended = kernel & (exit_ns != UNKNOWN)
    calls = Calls(
        collective=numbered(comm, seq),
        comm=comm,
        seq=seq,
        op=op,
        rank=rank,
        clock=looked_up(rank, clock_of_rank),
        step=column(table, "step"),
        enter_ns=enter_ns,
        done_ns=np.where(ended, exit_ns, unknown),
        wait_ns=np.where(ended, exit_ns - enter_ns, unknown),
        own_ns=column(table, "own_ns"),
        sync_ns=column(table, "sync_ns"),
        bytes=column(table, "bytes"),
        row=np.arange(len(rank), dtype=np.int64),
        comm_ids=comm_ids,
        ops=ops,
    )
    first = _first_of_each(calls.collective, calls.rank)
    return calls if first is None else calls.where(first)


def with_synchronizes(calls: Calls, table: pa.Table) -> Calls:
    """The calls with `done_ns` from the synchronize calls of their ranks (columns rank, start_ns, end_ns).

    The host only enqueues a collective; the longest synchronize call before the rank's next collective is the one that
    waited for it. Where several collectives were enqueued before it, it tells the end of the last.
    """
    done_ns = calls.done_ns.copy()
    rank, start_ns, end_ns = (column(table, name) for name in ("rank", "start_ns", "end_ns"))
    own_syncs = by_rank(rank)
    for one, mine in by_rank(calls.rank).items():
        syncs = own_syncs.get(one)
        if syncs is None:
            continue
        mine = mine[np.argsort(calls.enter_ns[mine], kind="stable")]
        # The collective that was entered last before each synchronize call.
        before = np.searchsorted(calls.enter_ns[mine], start_ns[syncs], side="right") - 1
        syncs, before = syncs[before >= 0], before[before >= 0]
        length_ns = end_ns[syncs] - start_ns[syncs]
        longest_ns = np.full(len(mine), UNKNOWN)
        np.maximum.at(longest_ns, before, length_ns)
        is_longest = longest_ns[before] == length_ns
        done_ns[mine[before[is_longest]]] = end_ns[syncs[is_longest]]
    return replace(calls, done_ns=done_ns)


def by_rank(rank: Int64s) -> dict[int, Int64s]:
    """The positions of each rank."""
    if not len(rank):
        return {}
    # Small integers are sorted without comparing them.
    order = np.argsort(rank.astype(np.uint16) if rank.max() < 1 << 16 and rank.min() >= 0 else rank, kind="stable")
    ordered = rank[order]
    begin = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return {int(ordered[first]): some for first, some in zip(begin, np.split(order, begin[1:]), strict=True)}


def column(table: pa.Table, name: str) -> Int64s:
    """A column of integers, -1 where it is NULL."""
    values: Any = table.column(name)
    if values.null_count:
        values = pc.fill_null(values.cast(pa.int64()), UNKNOWN)
    return np.asarray(values.cast(pa.int64()).to_numpy())


def looked_up(values: Int64s, table: dict[int, int]) -> Int64s:
    """What the table says for each value, -1 for one that it does not have."""
    keys = np.array(sorted(table), dtype=np.int64)
    if not len(keys):
        return np.full(len(values), UNKNOWN, dtype=np.int64)
    found = np.searchsorted(keys, values).clip(0, len(keys) - 1)
    numbers = np.array([table[key] for key in keys.tolist()], dtype=np.int64)
    return np.where(keys[found] == values, numbers[found], UNKNOWN)


def _codes(values: Any) -> tuple[Int64s, tuple[str, ...]]:
    if not len(values):
        return np.zeros(0, dtype=np.int64), ()
    encoded = values.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy()).astype(np.int64), tuple(encoded.dictionary.to_pylist())


def _communicators(table: pa.Table) -> tuple[Int64s, tuple[str, ...]]:
    """A number for each communicator and epoch; the ids by number."""
    comm, comm_ids = _codes(table.column("comm_id"))
    epoch = column(table, "epoch")
    if not epoch.any():
        return comm, comm_ids
    pairs, numbers = np.unique(comm * (epoch.max() + 1) + epoch, return_inverse=True)
    return numbers.astype(np.int64), tuple(comm_ids[pair // (epoch.max() + 1)] for pair in pairs.tolist())


def numbered(comm: Int64s, seq: Int64s) -> Int64s:
    """A number for each communicator and sequence number, small enough to index with."""
    if not len(comm):
        return comm
    lowest = np.full(comm.max() + 1, np.iinfo(np.int64).max)
    highest = np.full(comm.max() + 1, np.iinfo(np.int64).min)
    np.minimum.at(lowest, comm, seq)
    np.maximum.at(highest, comm, seq)
    # As floats: the difference of two numbers that somebody made up may be too large for an integer.
    apart = highest.astype(np.float64) - lowest.astype(np.float64)
    if apart[apart >= 0].sum() + len(apart) <= _SPARSE * len(comm) + 1_000_000:
        length = np.where(apart >= 0, highest - lowest + 1, 0)
        begin = np.cumsum(length) - length
        return np.asarray(begin[comm] + seq - lowest[comm])
    order = np.lexsort((seq, comm))
    fresh = np.append(True, (np.diff(comm[order]) != 0) | (np.diff(seq[order]) != 0))
    numbers = np.empty(len(comm), dtype=np.int64)
    numbers[order] = np.cumsum(fresh) - 1
    return numbers


def _first_of_each(collective: Int64s, rank: Int64s) -> Bools | None:
    """Which calls are the first of their rank in their collective; None if all are."""
    if not len(rank):
        return None
    ranks = int(rank.max()) + 1
    key = collective * ranks + rank
    size = (int(collective.max()) + 1) * ranks
    if size <= _SPARSE * len(key) + 1_000_000:
        if np.bincount(key, minlength=size).max() <= 1:
            return None
    elif len(np.unique(key)) == len(key):
        return None
    first = np.zeros(len(key), dtype=np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    return first
