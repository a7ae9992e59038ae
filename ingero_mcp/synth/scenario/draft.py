"""What a family plants, before it is known what a view shows of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ingero_mcp.synth.scenario.conditions import Conditions
from ingero_mcp.synth.scenario.durations import Durations
from ingero_mcp.synth.scenario.job import Job
from ingero_mcp.synth.scenario.plan import Plan, nothing
from ingero_mcp.synth.scenario.truth import Group, Verdict, View

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ground:
    """What a family has to work with. `unit_ns` is the size in an affected step: severity times the spread."""

    job: Job
    durations: Durations
    random: np.random.Generator
    severity: float

    @property
    def unit_ns(self) -> float:
        """Nanoseconds in an affected step."""
        return self.severity * self.durations.spread_ns

    def plan(self) -> Plan:
        """A plan to fill."""
        return nothing(self.job.steps, self.job.layout.world)

    def amounts(self, steps: Int64s, scatter: float = 0.1) -> Int64s:
        """The size in each of these steps, scattered a little."""
        factor = np.clip(1 + scatter * self.random.normal(size=len(steps)), 0.2, 2.0)
        return (self.unit_ns * factor).astype(np.int64)

    def rank(self) -> int:
        """Any rank."""
        return int(self.random.integers(self.job.layout.world))

    def onset(self) -> int:
        """From the start in half of the cases, else some way into the run."""
        steps = self.job.steps
        return 1 if self.random.random() < 0.5 else int(self.random.integers(steps // 4, steps // 2))

    def period(self, low: int = 8, high: int = 32) -> int:
        """A number of steps after which it recurs, often enough in this run to be seen."""
        most = max(3, self.job.steps // 6)
        return int(self.random.integers(min(low, most), min(high, most) + 1))

    def recurring(self, period: int) -> Int64s:
        """Every `period`-th step from the onset on."""
        first = self.onset()
        return np.arange(first + int(self.random.integers(period)), self.job.steps, period)

    def wide(self, share: float) -> bool:
        """Whether all ranks of a host are hit: in this share of the cases, where there are hosts enough to compare."""
        drawn = bool(self.random.random() < share)
        layout = self.job.layout
        return drawn and len(layout.hosts) >= 3 and layout.ranks_per_host > 1

    def host(self) -> Group:
        """All ranks of any host."""
        layout = self.job.layout
        host = int(self.random.integers(len(layout.hosts)))
        return Group("host", layout.hosts[host], layout.ranks_of_host(host))

    def victims(self, share: float) -> tuple[tuple[int, ...], Group | None]:
        """One rank, or all of a host."""
        if not self.wide(share):
            return (self.rank(),), None
        group = self.host()
        return group.ranks, group


@dataclass(frozen=True, slots=True)
class Draft:
    """What is planted. `steps` are the affected ones, from 0.

    `unseen_in` names views that cannot show it, with what may be said there; `hidden_in` views that show that
    something is wrong but not who. `even` is the same work dealt out evenly, where that it is
    not is the incident. `parts` are the incidents, where there are several.
    """

    plan: Plan
    verdict: Verdict
    cause: str
    culprits: tuple[int, ...] = ()
    group: Group | None = None
    steps: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    period_steps: int | None = None
    period_seconds: float | None = None
    accepted: tuple[Verdict, ...] = ()
    unseen_in: dict[View, tuple[Verdict, ...]] = field(default_factory=dict)
    hidden_in: tuple[View, ...] = ()
    conditions: Conditions | None = None
    even: Plan | None = None
    parts: tuple[Draft, ...] = ()
    traits: tuple[str, ...] = ()
