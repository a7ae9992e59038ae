"""Findings: what the analysis concludes, with its evidence. The nouns of an answer, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Verdict: TypeAlias = Literal["straggler", "hang", "imbalance", "network", "healthy", "undecidable"]

Cause: TypeAlias = Literal[
    "data_loader",
    "cpu_contention",
    "gc_pause",
    "allocator_retry",
    "gpu_throttle",
    "gpu_fault",
    "network",
    "pcie_numa",
    "checkpoint_io",
    "mismatched_collective",
    "early_exit",
    "sequence_imbalance",
    "stage_imbalance",
    "compile_warmup",
    "host_jitter",
    "host_hang",
    "clock_skew",
    "unknown",
    "none",
]

GroupKind: TypeAlias = Literal["stage", "host", "link", "communicator", "job"]

MOST_LISTED_STEPS: Final = 200


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact with its number; `event_ids` are events that show it."""

    statement: str
    value: float | None = None
    unit: str = ""
    event_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank at fault: how late it is when it is, and in what share of the steps. None where time is not the point."""

    rank: int
    lateness_ns: float | None = None
    share_of_steps: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that are at fault together: of a stage, on a host, at the ends of a link, in a communicator or a job."""

    kind: GroupKind
    id: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Affected:
    """Steps in which it happened, of `total` that were looked at."""

    steps: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One incident.

    `lost_ns` is how much longer the steps took because of it, summed: findings are ordered by it. `confidence` is from
    0 to 1, by the distance to the next best explanation. Times are those of the culprit's clock.
    """

    verdict: Verdict
    cause: Cause
    confidence: float
    statements: tuple[Statement, ...]
    culprits: tuple[Culprit, ...] = ()
    groups: tuple[Group, ...] = ()
    alternatives: tuple[tuple[Cause, float], ...] = ()
    waiting_ranks: tuple[int, ...] = ()
    affected: Affected | None = None
    onset_ns: int | None = None
    onset_step: int | None = None
    baseline_step_ns: float | None = None
    slowdown: float | None = None
    period_steps: int | None = None
    period_seconds: float | None = None
    grows: bool = False
    lost_ns: float = 0.0
    focus_ns: int | None = None
    enable: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
