"""Calls of collectives in a batch of events, grouped by who counts them: vectorised, since every event passes here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp.store.stretches import REMEMBERED
from ingero_mcp.views import POINT_TO_POINT

Int64s: TypeAlias = npt.NDArray[np.int64]
Key: TypeAlias = tuple[str | None, str | None, str, int, str | None]
"""cluster_id, job_id, comm_id, rank, timing_source: one count of collectives."""

KEY_COLUMNS: Final = ("cluster_id", "job_id", "comm_id", "rank", "timing_source")
_NCCL: Final = pa.array(["nccl"])
_MOST_CODES: Final = 1 << 31  # times the number of rows, that is still far from the end of an int64
_POINT_TO_POINT: Final = pa.array(POINT_TO_POINT)


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Group i has the calls `starts[i]` to `starts[i + 1]`, in order of time.

    `rows` are their places in the batch. Where `rising[i]`, the numbers only grow, and bit k of `seen[i]` tells
    whether the last of them minus k is among them.
    """

    keys: Sequence[Key]
    starts: Sequence[int]
    times_ns: Int64s
    seqs: Int64s
    rows: Int64s
    rising: Sequence[bool]
    seen: Sequence[int]


def group(batch: pa.Table) -> Grouped | None:
    """The calls of collectives in `batch` that say their rank; None where there are none."""
    if batch.column("coll_seq").null_count == batch.num_rows:
        return None
    chosen = np.flatnonzero(_array(_is_call(batch)))
    if not len(chosen):
        return None
    taken = batch.select([*KEY_COLUMNS, "timestamp_ns", "coll_seq"])
    if len(chosen) < batch.num_rows:
        taken = taken.take(chosen)
    codes, columns = _codes(taken)
    times, seqs = _array(taken.column("timestamp_ns")), _array(taken.column("coll_seq"))
    order = np.argsort(codes, kind="stable")
    if not _in_time(codes[order], times[order], seqs[order]):
        order = np.lexsort((seqs, times, codes))
    codes, times, seqs = codes[order], times[order], seqs[order]
    first = np.concatenate(([True], codes[1:] != codes[:-1]))
    starts = np.flatnonzero(first)
    rising = np.minimum.reduceat(first | (np.diff(seqs, prepend=seqs[0]) > 0), starts)
    ends = np.append(starts[1:], len(codes))
    behind = np.repeat(seqs[ends - 1], ends - starts) - seqs
    bits = np.where((behind >= 0) & (behind < REMEMBERED), np.uint64(1) << (behind & 63).astype(np.uint64), 0)
    seen = np.bitwise_or.reduceat(bits.astype(np.uint64), starts)
    heads = order[starts]
    keys = list(zip(*(column(heads) for column in columns), strict=True))
    return Grouped(keys, [*starts.tolist(), len(codes)], times, seqs, chosen[order], rising.tolist(), seen.tolist())


def _is_call(batch: pa.Table) -> Any:
    name = batch.column("metric_name")
    call: Any = pc.is_in(batch.column("source"), _NCCL)
    for column in ("coll_seq", "comm_id", "rank", "timestamp_ns"):
        call = pc.and_(call, pc.is_valid(batch.column(column)))
    elsewhere: Any = pc.or_(pc.is_in(name, _POINT_TO_POINT), pc.starts_with(name, "nccl."))
    return pc.and_not(call, pc.coalesce(elsewhere, pa.scalar(True)))


def _codes(taken: pa.Table) -> tuple[Int64s, list[Any]]:
    """A number for each key, and for each column a function from places to values."""
    codes = np.zeros(taken.num_rows, dtype=np.int64)
    columns = []
    for name in KEY_COLUMNS:
        encoded = taken.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        if codes.max() > _MOST_CODES:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        codes = codes * len(encoded.dictionary) + indices
        columns.append(_lookup(encoded.dictionary.to_pylist(), indices))
    return codes, columns


def _lookup(values: list[Any], indices: Any) -> Any:
    return lambda places: [values[index] for index in indices[places].tolist()]


def _array(column: pa.ChunkedArray[Any]) -> npt.NDArray[Any]:
    # In one piece first: to_numpy of the pieces looks for pandas, each time.
    return column.combine_chunks().to_numpy(zero_copy_only=False)


def _in_time(codes: Int64s, times: Int64s, seqs: Int64s) -> bool:
    later = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (seqs[1:] >= seqs[:-1]))
    return bool(np.all(later | (codes[1:] != codes[:-1])))
