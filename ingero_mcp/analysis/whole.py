"""Whether the collectives of a job were all recorded."""

from __future__ import annotations

import numpy as np

from ingero_mcp.analysis.calls import Calls


def is_sampled(calls: Calls) -> bool:
    """Whether whole collectives are missing from the numbers of a communicator, on all of its ranks."""
    return recorded_share(calls) < 0.9


def recorded_share(calls: Calls) -> float:
    """How many of the collectives between the first and the last number of each communicator any rank recorded."""
    if not len(calls):
        return 1.0
    comms = int(calls.comm.max()) + 1
    lowest, highest = np.full(comms, np.iinfo(np.int64).max), np.full(comms, -1)
    np.minimum.at(lowest, calls.comm, calls.seq)
    np.maximum.at(highest, calls.comm, calls.seq)
    used = highest >= 0
    expected = float((highest - lowest + 1.0)[used].sum())
    seen = int(np.count_nonzero(np.bincount(calls.collective)))
    return seen / max(expected, 1)
