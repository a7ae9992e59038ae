"""How long everything takes in a run: drawn once, so that the same run can be had with and without an incident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ingero_mcp.synth.scenario.job import US, Job
from ingero_mcp.synth.scenario.noise import bias_shape, common_shape, gpu_shape, host_shape

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_ROBUST: Final = 1.4826


@dataclass(frozen=True, slots=True, eq=False)
class Durations:
    """Per (steps, pp, dp, tp): work of the GPU in a step, what the host does before its first launch (on the CPU, and
    blocked), how far the end of the last collective is from the first rank's, how long waking up takes, and what all
    launches of a step cost the host."""

    gpu_ns: Int64s
    data_cpu_ns: Int64s
    data_blocked_ns: Int64s
    exit_ns: Int64s
    wake_ns: Int64s
    launch_ns: Int64s

    @property
    def spread_ns(self) -> int:
        """The robust sigma of a rank's own work in a step.

        From the differences between ranks in the same step, each pair against its own median: distances from the
        median of the ranks are too small where they are few, by a quarter for four of them.
        """
        work = self.gpu_ns + self.data_cpu_ns + self.data_blocked_ns + self.launch_ns
        own = work.reshape(len(work), -1).astype(np.float64)
        apart = np.concatenate([own - np.roll(own, by, axis=1) for by in range(1, own.shape[1] // 2 + 1)], axis=1)
        apart -= np.median(apart, axis=0)
        return max(1, int(_ROBUST * np.median(np.abs(apart)) / 2**0.5))


class Jitter:
    """The small differences between calls, one draw after the other."""

    def __init__(self, job: Job, random: np.random.Generator) -> None:
        self._job = job
        self._random = random

    def op(self, shape: tuple[int, ...]) -> Floats:
        """Factor of one piece of GPU work."""
        return np.clip(self._random.normal(1.0, 0.5 * self._job.gpu_sigma, shape), 0.9, 1.1)

    def api(self, shape: tuple[int, ...]) -> Int64s:
        """How long a call takes that only enqueues."""
        return (self._random.gamma(9.0, 0.7 * US, shape) + 1 * US).astype(np.int64)

    def transfer(self, kind: str, shape: tuple[int, ...]) -> Int64s:
        """How long the data of a collective travels."""
        factor = np.exp(self._random.normal(0.0, self._job.transfer_sigma, shape))
        return (self._job.transfer_ns[kind] * factor + 30 * US).astype(np.int64)

    def exits(self, shape: tuple[int, ...]) -> Int64s:
        """How much later than the first rank each rank leaves a collective."""
        return np.minimum(np.abs(self._random.normal(0.0, self._job.exit_spread_ns, shape)), 3e6).astype(np.int64)

    def wake(self, shape: tuple[int, ...]) -> Int64s:
        """From the end of the GPU's work until the waiting host knows."""
        return (self._random.gamma(4.0, 4 * US, shape) + 2 * US).astype(np.int64)


def draw_durations(job: Job, random: np.random.Generator) -> Durations:
    """The durations of a run without incident."""
    shape = (job.steps, *job.layout.shape)
    common = common_shape(random, job.steps).reshape(-1, 1, 1, 1) * job.common_sigma
    gpu = 1.0 + common + job.gpu_sigma * gpu_shape(random, shape, job.gpu_tail)
    gpu += job.gpu_sigma * bias_shape(random, (1, *job.layout.shape))
    host_ns = job.host_sigma * job.compute_ns * host_shape(random, shape, job.host_tail)
    host_ns += job.host_sigma * job.compute_ns * bias_shape(random, (1, *job.layout.shape))
    # Half of the host's deviation on the CPU, half blocked: in real jobs both scatter.
    blocked = np.maximum(job.data_blocked_ns * random.gamma(4.0, 0.25, shape) + host_ns / 2, 1 * US)
    cpu = np.maximum(job.data_cpu_ns + host_ns / 2, 5 * US)
    jitter = Jitter(job, random)
    return Durations(
        gpu_ns=(job.compute_ns * np.maximum(gpu, 0.3)).astype(np.int64),
        data_cpu_ns=cpu.astype(np.int64),
        data_blocked_ns=blocked.astype(np.int64),
        exit_ns=jitter.exits(shape),
        wake_ns=jitter.wake(shape),
        launch_ns=(
            job.compute_ns * np.maximum(job.launch_share + 0.5 * job.host_sigma * random.normal(size=shape), 0.02)
        ).astype(np.int64),
    )
