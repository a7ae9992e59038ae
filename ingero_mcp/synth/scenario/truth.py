"""What is planted in a scenario: the answer that an analysis has to find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["straggler", "hang", "imbalance", "network", "healthy", "undecidable"]
View = Literal["probe", "kernel", "optrace"]
VIEWS: Final[tuple[View, ...]] = ("probe", "kernel", "optrace")
ON_HOST: Final = (
    "data_loader", "cpu_contention", "gc_pause", "allocator_retry", "pcie_numa", "checkpoint_io", "compile_warmup",
    "host_jitter", "host_hang", "early_exit",
)  # fmt: skip
"""Causes that lie in what a host did."""
GroupKind = Literal["stage", "host", "link", "job"]


@dataclass(frozen=True, slots=True)
class Group:
    """A group of ranks that is at fault as a whole: `id` is a stage number, a host, or `host|host` for a link."""

    kind: GroupKind
    id: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """The planted incident as far as the events of a view can show it.

    `verdict` is what is right for this view, `accepted` the verdicts that are right too (a slow GPU that the view
    cannot see may be called healthy). `culprits` are the ranks at fault; empty where nobody is, or where the view
    cannot tell who (`is_hidden`). `is_single` says that one rank alone is at fault.

    `affected_steps` are values of the step column, `onset_step` the first; `period_steps` and `period_seconds` where
    it recurs. `severity` is the size in an affected step in units of `spread_ns`, the job's own noise: the sigma of a
    rank's work in a step. `lost_ns` is what the incident cost in wall time, from the same run without it. For a hang
    `hang_ns` is when the first rank stopped (true time).
    """

    family: str
    view: View
    verdict: Verdict
    cause: str
    accepted: tuple[Verdict, ...]
    culprits: tuple[int, ...] = ()
    group: Group | None = None
    is_single: bool = False
    is_hidden: bool = False
    affected_steps: tuple[int, ...] = ()
    onset_step: int | None = None
    period_steps: int | None = None
    period_seconds: float | None = None
    severity: float = 0.0
    spread_ns: int = 0
    step_ns: int = 0
    lost_ns: int = 0
    hang_ns: int | None = None
    traits: tuple[str, ...] = ()
    """What makes the case harder or special, for tables: pp, tp, loss, attach, sampled, offset, heavy_tail, ..."""

    @property
    def shows_cause(self) -> bool:
        """Whether the view has what tells the cause: what a host did is seen by the probe of the host only."""
        # A GPU that stops and a host that does look alike in kernels: none comes any more.
        is_gpu_unseen = self.cause == "gpu_fault" or (self.view, self.cause) == ("kernel", "gpu_throttle")
        return self.view == "probe" or not (self.cause in ON_HOST or is_gpu_unseen)

    @property
    def is_clean(self) -> bool:
        """Nobody is at fault, so nobody may be named."""
        return self.verdict == "healthy"
