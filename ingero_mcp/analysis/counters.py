"""GPU counters: a GPU whose clock is unlike its peers', or that says it is throttled.

With host timing a slow GPU cannot be seen in the calls: every rank waits equally long for it. Its counters show it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ingero_mcp.analysis.evidence import Counter, Evidence
from ingero_mcp.analysis.findings import Affected, Culprit, Finding, Statement
from ingero_mcp.analysis.incident import Incident
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.words import ranks_text

_CLOCK: Final = "gpu.clock.sm_mhz"
THROTTLE: Final = "gpu.throttle."
"""How the names of flags begin that say why a GPU is slowed down."""

_IDLE: Final = "idle"  # a GPU without work lowers its clock: that is no fault
_SLOW: Final = 0.9  # of the median clock


def slow_gpu(evidence: Evidence, steps: Steps, slow: Incident | None) -> Finding | None:
    """The ranks whose GPU counters stand out; `slow` are the steps in which transfers took longer, if any did."""
    suspects: dict[int, Statement] = {}
    slowed = 0.0
    clocks = [one for one in evidence.counters if one.metric == _CLOCK]
    usual = float(np.median([one.median for one in clocks])) if len(clocks) > 2 else 0.0
    for one in clocks:
        if one.median < _SLOW * usual:
            statement = f"the GPU of rank {{}} runs at {one.median:.0f} MHz, its peers at {usual:.0f}"
            _suspect(suspects, evidence, one, statement, one.median, "MHz")
            slowed = max(slowed, 1 - one.median / usual)
    for one in _throttled(evidence):
        _suspect(suspects, evidence, one, f"{one.metric} is set on the GPU of rank {{}}", one.median, "")
    if not suspects or len(suspects) > len(evidence.places) / 2:
        return None
    ranks = sorted(suspects)
    numbers = steps.numbers[slow.steps] if slow is not None else steps.numbers
    # Without steps to compare with: if all of the time were its computing, so much of it is lost.
    at_most_ns = slowed * float(np.nansum(steps.duration_ns))
    return Finding(
        "straggler",
        "unknown",
        0.8 if slow is not None else 0.6,
        tuple(suspects[rank] for rank in ranks[:8]),
        culprits=tuple(Culprit(rank, slow.excess if slow else None, len(numbers) / len(steps)) for rank in ranks),
        alternatives=(("gpu_throttle", 0.6),),
        waiting_ranks=tuple(rank for rank in evidence.places if rank not in ranks),
        affected=Affected(tuple(numbers.tolist()), len(steps)),
        onset_step=int(numbers[0]),
        lost_ns=slow.excess * len(slow.steps) if slow else at_most_ns,
        summary=(
            f"The GPU of rank {ranks_text(ranks)} is slower than its peers'.",
            "The hosts of all ranks wait equally long, as they do for a late GPU.",
            "Look at its temperature, power limit and throttle reasons.",
        ),
    )


def throttle_of(evidence: Evidence, rank: int) -> str:
    """What the counters of the rank's GPU say that its peers' do not; "" if nothing."""
    flag = next((one for one in _throttled(evidence) if rank in _ranks_of(evidence, one)), None)
    return f"{flag.metric} is set on the GPU of rank {rank}, and on few of its peers'" if flag else ""


def _throttled(evidence: Evidence) -> list[Counter]:
    """The flags that are set, but for those set on most GPUs, which say how these are run; by their names."""
    flags = [one for one in evidence.counters if one.metric.startswith(THROTTLE) and _IDLE not in one.metric]
    found = []
    for metric in sorted({one.metric for one in flags}):
        same = [one for one in flags if one.metric == metric]
        throttled = [one for one in same if one.median > 0]
        found += throttled if len(throttled) <= len(same) / 2 else []
    return found


def _suspect(
    suspects: dict[int, Statement], evidence: Evidence, one: Counter, statement: str, value: float, unit: str
) -> None:
    for rank in _ranks_of(evidence, one):
        suspects.setdefault(rank, Statement(statement.format(rank), value, unit))


def _ranks_of(evidence: Evidence, one: Counter) -> list[int]:
    if one.rank is not None:
        return [one.rank]
    if one.gpu_uuid is not None:
        return [rank for rank, place in evidence.places.items() if place.gpu_uuid == one.gpu_uuid]
    return []
