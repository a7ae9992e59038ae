"""Numbering the operations of a communicator, so that one operation has one number on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class Numbered:
    """The number of each row within its channel, and how well the rows of one operation fit together.

    `operations` counts distinct operations; `incomplete` those without a row of a rank that takes part in the
    channel elsewhere; `apart` those whose rows do not all overlap in time, as rows of one operation should.
    """

    numbers: pa.Array[Any]
    operations: int
    incomplete: int
    apart: int


def number(rows: pa.Table) -> Numbered:
    """Number operations from 0 per channel, in the order in which a first rank entered them.

    `rows` has the columns channel, operation, rank, start_ns and end_ns. Rows of equal `operation` are the
    same operation seen by different ranks; they share a channel, and no rank is there twice.
    """
    operation = rows.column("operation").combine_chunks().dictionary_encode()
    rows = rows.append_column("slot", operation.indices)
    slots = rows.group_by("slot", use_threads=False).aggregate(
        [
            ("channel", "min"),
            ("start_ns", "min"),
            ("start_ns", "max"),
            ("end_ns", "min"),
            ("rank", "count"),
            ("operation", "min"),
        ]
    )
    # Without threads groups come in the order of their first row: slot 0, 1, 2, ...
    apart: Any = pc.greater(slots.column("start_ns_max"), slots.column("end_ns_min"))
    incomplete: Any = pc.less(slots.column("rank_count"), _ranks_of_channel(rows, slots.column("channel_min")))
    return Numbered(
        numbers=_numbers(slots).take(operation.indices),
        operations=len(slots),
        incomplete=pc.sum(incomplete).as_py() or 0,
        apart=pc.sum(apart).as_py() or 0,
    )


def _ranks_of_channel(rows: pa.Table, channels: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    ranks = rows.group_by("channel", use_threads=False).aggregate([("rank", "count_distinct")])
    return ranks.column("rank_count_distinct").take(pc.index_in(channels, ranks.column("channel")))


def _numbers(slots: pa.Table) -> pa.Array[Any]:
    order = pc.sort_indices(
        slots, [("channel_min", "ascending"), ("start_ns_min", "ascending"), ("operation_min", "ascending")]
    )
    # Sorting the order gives its inverse: the position of each slot.
    position = pc.sort_indices(order).cast(pa.int64())
    # A channel begins after all slots of smaller channels, which is what rank counts.
    begin = pc.subtract(pc.rank(slots.column("channel_min"), tiebreaker="min").cast(pa.int64()), 1)
    numbers: pa.Array[Any] = pc.subtract(position, begin)
    return numbers
