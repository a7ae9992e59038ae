"""Steps whose clock restarts, laid end to end on one."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_LONGEST_NS: Final = 10 * 366 * 86_400 * 10**9


def lay_end_to_end(trace: pa.Table, epoch_ns: int) -> tuple[pa.ChunkedArray[Any], int]:
    """The start of every row on one clock, in Unix nanoseconds, and the number of steps.

    The first step begins at `epoch_ns`, each other one where the latest end of the step before it lies.
    `trace` has the columns step, start_ns and duration_ns. Raises ValueError if the steps last longer than
    ten years.
    """
    trace = trace.append_column("end_ns", pc.add(trace.column("start_ns"), trace.column("duration_ns")))
    steps = trace.group_by("step").aggregate([("start_ns", "min"), ("end_ns", "max")]).sort_by("step")
    first = steps.column("start_ns_min")
    length = pc.subtract(steps.column("end_ns_max"), first)
    # In floating point, because a trace that lies about its times would overflow the integers.
    if pc.sum(length.cast(pa.float64(), safe=False)).as_py() > _LONGEST_NS:
        raise ValueError(f"its {len(steps)} steps would last longer than ten years")
    begin = pc.add(pc.subtract(pc.cumulative_sum(length), length), epoch_ns)
    step = pc.index_in(trace.column("step"), steps.column("step"))
    shift = pc.subtract(begin, first).take(step)
    return pc.add(trace.column("start_ns"), shift), len(steps)
