"""The training job of a scenario: its size, what a step of it consists of, and how it scatters. Drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from ingero_mcp.synth.scenario.layout import Layout
from ingero_mcp.synth.scenario.noise import Tail
from ingero_mcp.synth.scenario.truth import View

MS: Final = 1_000_000
US: Final = 1_000
SECOND: Final = 1_000_000_000
START_NS: Final = 1_790_000_000 * SECOND

Shape = tuple[int, int, int, int]
"""(pp, dp, tp, hosts)"""
DATA_PARALLEL: Final[tuple[Shape, ...]] = (
    (1, 4, 1, 1), (1, 8, 1, 1), (1, 8, 1, 2), (1, 8, 1, 4), (1, 16, 1, 2), (1, 16, 1, 4), (1, 32, 1, 4), (1, 64, 1, 8),
)  # fmt: skip
PIPELINES: Final[tuple[Shape, ...]] = (
    (2, 4, 1, 2), (2, 4, 1, 1), (4, 2, 1, 2), (4, 3, 1, 3), (4, 4, 1, 4), (4, 4, 1, 2), (2, 8, 1, 4),
)  # fmt: skip
TENSOR: Final[tuple[Shape, ...]] = ((1, 4, 2, 2), (1, 2, 4, 2), (1, 4, 4, 4), (1, 8, 2, 2), (1, 8, 4, 4))
MIXED: Final[tuple[Shape, ...]] = ((2, 3, 2, 3), (2, 4, 2, 4), (2, 4, 4, 4), (4, 4, 2, 4), (4, 4, 4, 8))
SHAPES: Final = (*DATA_PARALLEL, *DATA_PARALLEL, *PIPELINES, *PIPELINES, *TENSOR, *MIXED)
"""Those without a pipeline are as frequent as those with one."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job. Times are nanoseconds, shares are parts of `compute_ns`: the GPU work of a rank in a step.

    `sync` says when the host waits for the GPU: once per `step`, or after each `micro` batch too. `step_known` says
    whether the events carry the step, `kernel_step_known` whether those of the kernel view do too; the three last
    fields, what the probe of the job's hosts sees besides calls.
    """

    layout: Layout
    steps: int
    first_step: int
    start_ns: int
    compute_ns: int
    data_cpu_ns: int
    data_blocked_ns: int
    launch_share: float
    micro_batches: int
    schedule: Literal["1f1b", "gpipe"]
    buckets: int
    sync: Literal["step", "micro"]
    gpu_sigma: float
    host_sigma: float
    common_sigma: float
    gpu_tail: Tail
    host_tail: Tail
    transfer_ns: dict[str, int]
    transfer_sigma: float
    exit_spread_ns: int
    bytes: int
    step_known: bool = True
    kernel_step_known: bool = True
    has_gpu_counters: bool = False
    has_gc_hook: bool = False
    sees_retransmits: bool = False

    def has_steps(self, view: View) -> bool:
        """Whether the events of this view carry the step."""
        return self.step_known and (view != "kernel" or self.kernel_step_known)

    def traits(self, view: View) -> tuple[str, ...]:
        """What kind of job it is, in this view."""
        layout = self.layout
        found = [name for name, size in (("pp", layout.pp), ("tp", layout.tp)) if size > 1]
        found += ["multi_host"] if len(layout.hosts) > 1 else []
        found += ["micro_sync"] if self.sync == "micro" else []
        found += ["heavy_tail"] if self.gpu_tail.share or self.host_tail.share else []
        found += [] if self.has_steps(view) else ["no_steps"]
        return tuple(found)


def draw_job(random: np.random.Generator, seed: int, shapes: tuple[Shape, ...] = SHAPES, steps: int = 0) -> Job:
    """A job of one of these shapes; `steps` 0 lets its size decide how many there are."""
    pp, dp, tp, hosts = shapes[random.integers(len(shapes))]
    names = tuple(f"gpu-node-{number + 1}" for number in range(hosts))
    layout = Layout(f"train-{seed}", pp, dp, tp, names, embedding=pp > 1 and bool(random.random() < 0.6))
    compute_ns = int(np.exp(random.uniform(np.log(60 * MS), np.log(900 * MS))))
    sigma = float(np.exp(random.uniform(np.log(0.004), np.log(0.02))))
    return Job(
        layout=layout,
        steps=steps or _steps(layout),
        first_step=0 if random.random() < 0.7 else int(random.integers(1, 20_000)),
        start_ns=START_NS + int(random.integers(86_400 * SECOND)),
        compute_ns=compute_ns,
        data_cpu_ns=int(compute_ns * random.uniform(0.01, 0.04)),
        data_blocked_ns=int(compute_ns * random.uniform(0.002, 0.02)),
        launch_share=random.uniform(0.1, 0.4),
        micro_batches=_micro_batches(random, layout),
        schedule="1f1b" if random.random() < 0.75 else "gpipe",
        buckets=int(random.integers(1, 4)),
        sync="step" if random.random() < 0.65 else "micro",
        gpu_sigma=sigma,
        host_sigma=sigma * random.uniform(0.2, 1.0),
        common_sigma=sigma * random.uniform(0.0, 1.5),
        gpu_tail=Tail(),
        host_tail=Tail(0.003, 4.0) if random.random() < 0.3 else Tail(),
        transfer_ns={
            "world": int(random.uniform(60 * US, 250 * US)),
            "dp": int(compute_ns * random.uniform(0.02, 0.10)),
            "tp": int(compute_ns * random.uniform(0.002, 0.006)),
            "pp": int(compute_ns * random.uniform(0.001, 0.006)),
            "embedding": int(compute_ns * random.uniform(0.005, 0.02)),
        },
        transfer_sigma=random.uniform(0.01, 0.05),
        exit_spread_ns=int(random.uniform(5 * US, 60 * US)),
        bytes=int(random.choice((64, 128, 256, 512))) << 20,
        step_known=bool(random.random() < 0.9),
        kernel_step_known=bool(random.random() < 0.5),
        has_gpu_counters=bool(random.random() < 0.5),
        has_gc_hook=bool(random.random() < 0.5),
        sees_retransmits=bool(random.random() < 0.5),
    )


def noisy(job: Job, random: np.random.Generator) -> Job:
    """The same job, but scattering more: larger sigmas and heavy tails."""
    return replace(
        job,
        gpu_sigma=job.gpu_sigma * random.uniform(1.5, 3.0),
        host_sigma=job.host_sigma * random.uniform(1.5, 3.0),
        gpu_tail=Tail(random.uniform(0.002, 0.02), random.uniform(4.0, 15.0)),
        host_tail=Tail(random.uniform(0.002, 0.02), random.uniform(4.0, 25.0)),
    )


def _micro_batches(random: np.random.Generator, layout: Layout) -> int:
    if layout.pp > 1:
        return int(layout.pp * (1 if layout.world >= 32 else random.integers(1, 3)))
    return int(random.integers(1, 4))


def _steps(layout: Layout) -> int:
    if layout.pp == 1:
        return 150 if layout.world <= 16 else 100
    return 120 if layout.world <= 8 else 80 if layout.world <= 16 else 50
