"""An incident: steps in which a row of numbers was larger than it should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ingero_mcp.analysis.calls import Int64s

Shape = Literal["stretch", "comb", "single"]


@dataclass(frozen=True, slots=True, eq=False)
class Incident:
    """Steps (indices, in order) in which a row was too large, by `excess` in the median, with the evidence in nats."""

    row: int
    steps: Int64s
    excess: float
    evidence: float
    shape: Shape
    period: int | None


def period_of(steps: Int64s) -> int | None:
    """The period of steps that recur: all distances are multiples of it, most are it; None if there is none."""
    if len(steps) < 3:
        return None
    distances = np.diff(steps)
    period = int(np.median(distances))
    whole = np.all(distances % period == 0) if period > 1 else False
    return period if whole and float(np.mean(distances == period)) >= 0.6 else None
