"""Calls: what every rank did in every collective, as parallel arrays. What the rest of the analysis reads.

An array has one element per call: one rank in one collective (or in one send or receive). Times are Unix
nanoseconds on the clock of the rank's node, nothing is corrected here. -1 stands for what is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """Calls of a job, in any order.

    `collective` numbers the collective: calls of different ranks with the same number are the same one. `comm` is an
    index into `comm_ids`, `op` into `ops`. `rank` is global, `clock` numbers the clock that stamped the call (one per
    node; one per rank where nodes are not known).

    `enter_ns` is when the rank entered the call. `done_ns` is when it knew that the collective had ended: the end of
    the kernel, or of the synchronize call that waited for it; never the return of a call that only enqueues.
    `wait_ns` is how long the kernel ran on this rank; only GPU timing knows it.

    `own_ns` is what the calling thread did since its previous collective (on CPU, blocked, waiting for a CPU),
    `sync_ns` the time in synchronize calls since then. `row` is the index of the event in the table that was read.
    """

    collective: Int64s
    comm: Int64s
    seq: Int64s
    op: Int64s
    rank: Int64s
    clock: Int64s
    step: Int64s
    enter_ns: Int64s
    done_ns: Int64s
    wait_ns: Int64s
    own_ns: Int64s
    sync_ns: Int64s
    bytes: Int64s
    row: Int64s
    comm_ids: tuple[str, ...]
    ops: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rank)

    def where(self, chosen: Any) -> Calls:
        """The calls of a mask or of an array of positions."""
        columns = {name: getattr(self, name)[chosen] for name in _ARRAYS}
        return Calls(**columns, comm_ids=self.comm_ids, ops=self.ops)


_ARRAYS: Final = tuple(field.name for field in fields(Calls) if field.name not in ("comm_ids", "ops"))
