"""A run of a job: everything that happened, and when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingero_mcp.synth.scenario.durations import Durations, Jitter
from ingero_mcp.synth.scenario.job import Job
from ingero_mcp.synth.scenario.plan import Plan
from ingero_mcp.synth.scenario.program import Program
from ingero_mcp.synth.scenario.timeline import Op, Phase

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What happened. `base_ns` is the true time at which each step began, `step_ns` how long it took (steps,).

    Times in `ops` and `phases` are relative to `base_ns`. A run that hangs has its last step at `last_step`, in which
    some things never happen.
    """

    job: Job
    plan: Plan
    ops: list[Op]
    phases: list[Phase]
    base_ns: Int64s
    step_ns: Int64s
    last_step: int
    mismatched: Op | None = None
    """The collective in which the ranks of a `mismatch` stop call something else, in the last step."""

    @property
    def length_ns(self) -> int:
        """Wall time of all steps."""
        return int(self.step_ns.sum())


def simulate(job: Job, durations: Durations, plan: Plan, seed: int) -> Run:
    """The run; the same seed draws the same small differences."""
    program = Program(job, durations, plan, Jitter(job, np.random.default_rng(seed)))
    program.run()
    step_ns = program.end_ns
    base_ns = job.start_ns + np.concatenate([[0], np.cumsum(step_ns)[:-1]])
    last_step = job.steps - 1 if plan.stop is None else plan.stop.step
    timeline = program.timeline
    return Run(job, plan, timeline.ops, timeline.phases, base_ns, step_ns, last_step, program.mismatched)
