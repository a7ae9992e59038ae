"""First calls: how long after the end of a step each rank is in its first communication of the next.

What a host does before its first launch (a batch that is not there, a checkpoint) lies in that time, and in a pipeline
little of the computing does: it scatters less than the work of the whole step.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN
from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.evidence import Evidence, Matrix
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.whole import is_sampled

FIRST_CALL: Final = "its time until its first communication of the step"
"""What the table measures."""


def until_first_call(evidence: Evidence, steps: Steps) -> Matrix | None:
    """In ns per step and rank; None without GPU timing, without a pipeline, or where computing itself was recorded."""
    calls, sends = evidence.calls, evidence.sends.calls
    if evidence.timing != "kernel_gpu" or evidence.work is not None or not len(sends) or is_sampled(calls):
        return None
    ranks = distinct(calls.rank)
    values = np.full((len(steps), len(ranks)), np.nan)
    for column, rank in enumerate(ranks.tolist()):
        mine = np.flatnonzero((calls.rank == rank) & (calls.done_ns != UNKNOWN) & (steps.of_call != UNKNOWN))
        ended = np.full(len(steps), -1, dtype=np.int64)
        np.maximum.at(ended, steps.of_call[mine], calls.done_ns[mine])
        began = np.sort(np.concatenate([calls.enter_ns[calls.rank == rank], sends.enter_ns[sends.rank == rank]]))
        place = np.searchsorted(began, ended[:-1], side="left")
        known = (ended[:-1] > 0) & (ended[1:] > 0) & (place < len(began))
        first = began[np.minimum(place, len(began) - 1)]
        known &= first < np.where(ended[1:] > 0, ended[1:], 0)
        values[1:, column] = np.where(known, first - ended[:-1], np.nan)
    return Matrix(values, steps.numbers, ranks, FIRST_CALL)
