"""Idle times: whether a rank lost its time in a few long pauses, as hosts make them, or in many short ones.

Where computing was recorded and a rank is late outside of it, its GPU had nothing to do. A host that stalls (a batch
that is not there, a collection of garbage, a checkpoint) makes few long pauses. Pauses after every single operation in
proportion to it are no stall: durations and times of the recording do not belong together.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Int64s
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.stragglers import Straggler

_FEW: Final = 4
_MOST: Final = 0.5


def is_paused(one: Straggler, evidence: Evidence, steps: Steps) -> bool:
    """Whether the longest few pauses of a rank carry most of its excess in the typical step in which it is late."""
    enter_ns, done_ns = _occupied(evidence, one.rank)
    if len(enter_ns) < 2:
        return True
    until_ns = np.maximum.accumulate(done_ns)
    pause_ns = np.maximum(enter_ns[1:] - until_ns[:-1], 0)
    # A pause belongs to the step whose last collective ends next.
    ends = steps.end_ns
    shares = []
    for number, excess_ns in zip(one.numbers.tolist(), one.excess_ns[one.steps].tolist(), strict=True):
        place = int(np.searchsorted(steps.numbers, number))
        if place == 0 or place >= len(steps) or not excess_ns > 0:
            continue
        inside = (enter_ns[1:] > ends[place - 1]) & (enter_ns[1:] <= ends[place])
        longest = np.sort(pause_ns[inside])[-_FEW:]
        shares.append(float(longest.sum()) / excess_ns)
    return not shares or float(np.median(shares)) >= _MOST


def _occupied(evidence: Evidence, rank: int) -> tuple[Int64s, Int64s]:
    """When a rank computed or communicated: begins and ends, by begin."""
    begins, ends = [], []
    for calls in (evidence.calls, evidence.sends.calls):
        mine = np.flatnonzero((calls.rank == rank) & (calls.done_ns != UNKNOWN))
        begins.append(calls.enter_ns[mine])
        ends.append(calls.done_ns[mine])
    if evidence.work is not None:
        mine = np.flatnonzero(evidence.work.rank == rank)
        begins.append(evidence.work.start_ns[mine])
        ends.append(evidence.work.end_ns[mine])
    begin, end = np.concatenate(begins), np.concatenate(ends)
    order = np.argsort(begin, kind="stable")
    return begin[order], end[order]
