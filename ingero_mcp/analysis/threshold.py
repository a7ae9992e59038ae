"""Ingero's threshold: the health score under which an agent calls itself a straggler, from the scores of its cohort.

median - k * MAD * 1.4826, smoothed over time, as Ingero Fleet documents it. Fewer than half of the nodes, however bad
their scores are, cannot move it beyond what the others alone would allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from ingero_mcp.analysis.outliers import MAD_TO_SIGMA

K: Final = 2.0
"""Robust standard deviations below the median: with normal scores 2.3 % of healthy nodes are below."""

LEAST_K: Final = 1.0
MOST_K: Final = 4.0

_ROUNDING: Final = 1e-9  # what the agent adds to its score before it compares


@dataclass(frozen=True, slots=True)
class Rule:
    """How a threshold is made: `k` from 1 to 4, `ema_alpha` in (0, 1] (1: not smoothed), and the quorum."""

    k: float = K
    ema_alpha: float = 0.2
    least_nodes: int = 5


@dataclass(frozen=True, slots=True, order=True)
class Cohort:
    """Nodes that are compared with each other. An empty hash is that of agents that do not send one."""

    cluster_id: str
    cgroup_path_hash: str = ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The threshold of a cohort: 0 where `quorum_met` is false. `stragglers` of its `nodes` are below it."""

    value: float
    quorum_met: bool
    nodes: int
    median: float
    mad: float
    stragglers: int


NONE: Final = Threshold(0.0, False, 0, 0.0, 0.0, 0)
"""Of a cohort that nobody is in."""


def threshold_of(scores: Sequence[float], rule: Rule, previous: float | None = None) -> Threshold:
    """The threshold of the scores of the active nodes of a cohort; `previous` is the one that it is smoothed with.

    Scores that are not finite are left out. A threshold is not bent into the range from 0.1 to 0.99 that agents accept:
    outside of it they keep the one that they had.

    >>> round(threshold_of([0.90, 0.91, 0.92, 0.93, 0.30], Rule()).value, 4)
    0.8803
    """
    known = [score for score in scores if math.isfinite(score)]
    if not known:
        return NONE
    center = median(known)
    mad = median(abs(score - center) for score in known)
    if len(known) < rule.least_nodes:
        return Threshold(0.0, False, len(known), center, mad, 0)
    value = center - rule.k * mad * MAD_TO_SIGMA
    if previous is not None:
        value = rule.ema_alpha * value + (1 - rule.ema_alpha) * previous
    below = sum(is_below(score, value) for score in known)
    return Threshold(value, True, len(known), center, mad, below)


def is_below(score: float, threshold: float) -> bool:
    """Whether an agent with this score calls itself a straggler."""
    return score + _ROUNDING < threshold
