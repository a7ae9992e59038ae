"""Waits as the hosts see them: how long all ranks wait in a step, for transfers and for what GPUs still had to compute.

Longer waits with nobody late are a slow GPU or a slow network. From the hosts' side the two look the same.
"""

from __future__ import annotations

from math import exp
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Affected, Finding, Statement
from ingero_mcp.analysis.incident import Incident
from ingero_mcp.analysis.shifts import find_shift
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.transfer_times import Transfers, ratios, transfers
from ingero_mcp.analysis.words import duration_text

_LEAST: Final = 8  # steps
_LASTING: Final = 0.1  # of the steps: what is shorter may be anything
_LONGER: Final = 0.03  # of a step


def slow_steps(steps: Steps, times: Transfers, keep: Bools) -> Incident | None:
    """The steps in which transfers, with the computing that they waited for, took longer."""
    kept = times.where(keep)
    if not len(kept):
        return None
    series = np.log(_of_all(ratios(kept, len(steps))))
    shift = find_shift(series[:, None])
    if shift is None or shift.high.sum() < max(_LEAST, _LASTING * len(steps)):
        return None
    per_step = np.bincount(kept.step, weights=kept.time_ns, minlength=len(steps)) / np.maximum(
        np.bincount(kept.comm, minlength=len(kept.comm_ids)).astype(bool).sum(), 1
    )
    excess = float(np.median(per_step[np.isfinite(series)])) * (exp(shift.difference) - 1)
    durations = steps.duration_ns[np.isfinite(steps.duration_ns)]
    if excess < _LONGER * float(np.median(durations)):
        return None
    return Incident(0, np.flatnonzero(shift.high), excess, shift.difference / max(shift.spread, 1e-9), "stretch", None)


def _of_all(series: Floats) -> Floats:
    """The mean of each row, NaN left out."""
    known = np.isfinite(series)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(count > 0, np.where(known, series, 0.0).sum(axis=1) / count, np.nan))


def longer_waits(evidence: Evidence, steps: Steps, late: Bools) -> Finding | None:
    """What is to be said if all ranks wait longer than they used to; in `late` steps some rank was late."""
    times = transfers(evidence.calls, steps)
    incident = slow_steps(steps, times, ~late[times.step])
    if incident is None:
        return None
    numbers = steps.numbers[incident.steps]
    rows = times.row[np.isin(times.step, incident.steps)]
    return Finding(
        "undecidable",
        "unknown",
        0.3,
        (
            Statement(
                f"from step {int(numbers[0])} on all ranks wait {duration_text(incident.excess)} longer for their "
                "collectives, with nobody late",
                incident.excess / 1e6,
                "ms",
                tuple(evidence.event_id(int(row)) for row in rows[:4]),
            ),
        ),
        alternatives=(("network", 0.4), ("gpu_throttle", 0.4)),
        affected=Affected(tuple(numbers.tolist()), len(steps)),
        onset_ns=int(evidence.calls.enter_ns[rows].min()),
        onset_step=int(numbers[0]),
        period_steps=incident.period,
        lost_ns=incident.excess * len(numbers),
        enable=(
            "GPU timing of collectives (NCCL profiler plugin): kernel durations tell a late GPU from a slow network",
            "GPU counters (clocks, throttle reasons) of every rank",
        ),
        summary=(
            f"All ranks wait longer for their collectives since step {int(numbers[0])}, and no rank enters late.",
            "From the hosts' side a slow GPU and a slow network look the same, so which cannot be told.",
            "Enable GPU timing of collectives or GPU counters.",
        ),
    )
