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
class Fault:
    """One of several incidents in a run: `lost_ns` is what the run would be shorter without it.

    `is_hidden`: the view does not show it, or it costs next to nothing beside the others.
    """

    cause: str
    verdict: Verdict
    culprits: tuple[int, ...]
    group: Group | None
    lost_ns: int
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """The planted incident as far as the events of a view can show it.

    `verdict` is what is right for this view, `accepted` the verdicts that are right too (a slow GPU that the view
    cannot see may be called healthy). `culprits` are the ranks at fault; empty where nobody is, or where the view
    cannot tell who (`is_hidden`). `is_single` says that one rank alone is at fault.

    `affected_steps` are values of the step column, `onset_step` the first; `period_steps` and `period_seconds` where
    it recurs. `severity` is the size in an affected step in units of `spread_ns`, the job's own noise: the sigma of a
    rank's work in a step. `lost_ns` is what the incident cost in wall time: against the same run without it, or with
    the same work dealt out evenly where that it is not is the incident. For a hang `hang_ns` is when the first rank
    stopped (true time). `faults` are the incidents where there are several, the costliest first.
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
    faults: tuple[Fault, ...] = ()

    @property
    def shows_cause(self) -> bool:
        """Whether the view has what tells the cause: what a host did is seen by the probe of the host only."""
        return shows_cause(self.view, self.cause)

    @property
    def is_clean(self) -> bool:
        """Nobody is at fault, so nobody may be named."""
        return self.verdict == "healthy"


def shows_cause(view: View, cause: str) -> bool:
    """Whether a view has what tells a cause: what a host did is seen by the probe of the host only."""
    # A GPU that stops and a host that does look alike in kernels: none comes any more.
    is_gpu_unseen = cause == "gpu_fault" or (view, cause) == ("kernel", "gpu_throttle")
    return cause != "unknown" and (view == "probe" or not (cause in ON_HOST or is_gpu_unseen))
