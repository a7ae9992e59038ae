"""Whether the collectives of a job were all recorded."""

from __future__ import annotations

import numpy as np

from ingero_mcp.analysis.calls import Calls


def is_sampled(calls: Calls) -> bool:
    """Whether whole collectives are missing from the numbers of a communicator, on all of its ranks."""
    if not len(calls):
        return False
    comms = int(calls.comm.max()) + 1
    lowest, highest = np.full(comms, np.iinfo(np.int64).max), np.full(comms, -1)
    np.minimum.at(lowest, calls.comm, calls.seq)
    np.maximum.at(highest, calls.comm, calls.seq)
    used = highest >= 0
    expected = int((highest - lowest + 1)[used].sum())
    seen = int(np.count_nonzero(np.bincount(calls.collective)))
    return seen < 0.9 * expected
