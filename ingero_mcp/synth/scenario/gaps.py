"""Where in a run the planted host time lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingero_mcp.synth.scenario.plan import Plan
from ingero_mcp.synth.scenario.run import Run

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """The planted times of one rank: when each begins (true Unix ns) and how long it is, and in which step (from 0).

    `rank` is -1 for what belongs to a host.
    """

    host: int
    rank: int
    start_ns: Int64s
    length_ns: Int64s
    steps: Int64s | None = None


def gaps_of(run: Run, plan: Plan) -> Iterator[Gap]:
    """The planted host times of each rank that has any, of one layer of the run's plan."""
    phase, cut = run.phases[0], run.last_step + 1
    # Planted time comes last in its part of the phase: on the CPU, then blocked, then waiting for a CPU.
    ends_cpu = phase.start + phase.cpu
    ends_blocked = ends_cpu + phase.blocked
    for rank in np.flatnonzero(plan.extra_ns.any(axis=0)).tolist():
        for planted, end in (
            (plan.cpu_ns, ends_cpu),
            (plan.blocked_ns, ends_blocked),
            (plan.runq_ns, ends_blocked + phase.runq),
        ):
            steps = np.flatnonzero(planted[:cut, rank])
            if len(steps):
                length = planted[steps, rank]
                start = run.base_ns[steps] + end[steps, rank] - length
                yield Gap(run.job.layout.host_of(rank), rank, start, length, steps)
