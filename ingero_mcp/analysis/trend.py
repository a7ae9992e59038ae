"""Trend: whether what a rank loses in its late steps grows, shrinks or stays, and whether that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import duration_text

_FEWEST: Final = 6  # late steps
_MOST: Final = 400  # of them are compared pair by pair
_SURE: Final = 3.0  # standard errors of Kendall's statistic
_MATERIAL: Final = 0.15  # between the first third and the last


@dataclass(frozen=True, slots=True)
class Trend:
    """Typical lateness in the first and last third of the late steps, in ns; `grows` and `shrinks` beyond chance."""

    first_ns: float
    last_ns: float
    grows: bool
    shrinks: bool

    @property
    def statement(self) -> Statement:
        """In one sentence."""
        change = self.last_ns / self.first_ns if self.first_ns > 0 else 1.0
        first, last = duration_text(self.first_ns), duration_text(self.last_ns)
        if self.grows or self.shrinks:
            word = "grows" if self.grows else "shrinks"
            text = f"it {word}: {first} in the first third of its late steps, {last} in the last"
        else:
            text = f"it neither grows nor shrinks: {first} in the first third of its late steps, {last} in the last"
        return Statement(text, change, "ratio")


def trend_of(late_ns: Floats) -> Trend | None:
    """The trend of lateness in ns, one for each late step in order; None for few steps.

    Mann's test: of all pairs of steps, how many more have the later one larger than smaller. Without a trend that is 0
    with a variance of n (n - 1) (2 n + 5) / 18 (Kendall 1975).
    """
    known = late_ns[np.isfinite(late_ns)]
    if len(known) < _FEWEST:
        return None
    known = known[np.linspace(0, len(known) - 1, min(len(known), _MOST)).astype(np.int64)]
    count, third = len(known), len(known) // 3
    later = np.triu(np.sign(known[None, :] - known[:, None]), 1).sum()
    error = (count * (count - 1) * (2 * count + 5) / 18) ** 0.5
    first_ns, last_ns = float(np.median(known[:third])), float(np.median(known[-third:]))
    is_sure = abs(later) >= _SURE * error and abs(last_ns - first_ns) >= _MATERIAL * max(abs(first_ns), 1.0)
    return Trend(first_ns, last_ns, bool(is_sure and later > 0), bool(is_sure and later < 0))
