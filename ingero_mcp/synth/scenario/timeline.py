"""The clocks of hosts and GPUs while a job runs, all ranks and all steps at once.

Every step ends in a collective of all ranks and a wait for it, so steps can be simulated side by side: times are
nanoseconds since the start of the step, and what one step leaves to the next is known beforehand. Arrays have the shape
(steps, pp, dp, tp). The host runs ahead: it enqueues, and the GPU does things in their order once they are enqueued.
NEVER is the time of what does not happen; it spreads by itself to everything that waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Times = tuple[Int64s, Int64s, Int64s, Int64s]
NEVER: Final = 1 << 61
"""Far later than any time, and addable a few times without overflow."""


def happens(times: Int64s) -> npt.NDArray[np.bool_]:
    """Which of these times are those of something that happens."""
    happened: npt.NDArray[np.bool_] = times < NEVER // 2
    return happened


@dataclass(slots=True, eq=False)
class Op:
    """One thing that ranks do in each step; arrays are (steps, its ranks).

    `enter` and `leave` are times of the host (when it called, when the call returned), `begin` and `done` of the GPU.
    For a synchronize only the host's times count, for compute only the GPU's. `windows` are what the thread did since
    its previous collective: on CPU, blocked, waiting for a CPU, in synchronize calls; `is_first` says that this reaches
    back into the step before. `group` is the kind of communicator, for messages with the direction after a slash.
    """

    kind: Literal["collective", "send", "recv", "sync", "compute"]
    name: str
    ranks: Int64s
    enter: Int64s
    leave: Int64s
    begin: Int64s
    done: Int64s
    group: str = ""
    bytes: int = 0
    micro_batch: int = -1
    windows: Times | None = None
    is_first: bool = False


@dataclass(slots=True, eq=False)
class Phase:
    """Host work at the start of a step: first on the CPU, then blocked, then waiting for a CPU; (steps, ranks)."""

    start: Int64s
    cpu: Int64s
    blocked: Int64s
    runq: Int64s


@dataclass(slots=True, eq=False)
class Timeline:
    """Clocks that move; `ops` and `phases` are what happened. `start` is when each host begins a step."""

    start: Int64s
    host: Int64s = field(init=False)
    gpu: Int64s = field(init=False)
    side: Int64s = field(init=False)
    spent: list[Int64s] = field(init=False)
    ops: list[Op] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    _entered: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.host, self.gpu, self.side = self.start.copy(), self.start.copy(), self.start.copy()
        self.spent = [np.zeros_like(self.start) for _ in range(4)]

    def work(self, cpu: Int64s, blocked: Int64s, runq: Int64s) -> None:
        """All hosts: on the CPU, then blocked, then runnable."""
        flat = (len(self.host), -1)
        parts = [part.reshape(flat) for part in (self.host.copy(), cpu, blocked, runq)]
        self.phases.append(Phase(*parts))
        self.host += cpu + blocked + runq
        for spent, part in zip(self.spent, (cpu, blocked, runq), strict=False):
            spent += part

    def compute(self, name: str, stages: slice, cost: tuple[Int64s, Int64s], work: Int64s, micro_batch: int) -> None:
        """Launch work: the host spends `cost` (on the CPU, and waiting for one), the GPU does it when it can."""
        cpu, runq = cost
        self.spent[0][:, stages] += cpu
        self.spent[2][:, stages] += runq
        enter = self.host[:, stages].copy()
        self.host[:, stages] += cpu + runq
        begin = np.maximum(self.gpu[:, stages], self.host[:, stages])
        self.gpu[:, stages] = done = begin + work
        times = self._times(enter, self.host[:, stages], begin, done)
        self.ops.append(Op("compute", name, self._ranks(stages), *times, micro_batch=micro_batch))

    def collective(
        self, op: Op, stages: slice, axes: tuple[int, ...], api: Int64s, transfer: Int64s, spread: Int64s
    ) -> None:
        """A call that the host enqueues; it ends on all ranks of a group `transfer` after the last GPU reached it.

        `op` brings the names. Axes are those of (steps, stages, dp, tp) along which the ranks of a group lie. It runs
        on a stream of its own beside the compute stream; `join` makes that one wait.
        """
        enter, windows = self._enter(stages)
        self._call(stages, api)
        begin = np.maximum(np.maximum(self.side[:, stages], self.gpu[:, stages]), self.host[:, stages])
        done = begin.max(axis=axes, keepdims=True) + transfer + spread
        self.side[:, stages] = done
        op.ranks = self._ranks(stages)
        op.enter, op.leave, op.begin, op.done = self._times(enter, self.host[:, stages], begin, done)
        op.windows = windows
        op.is_first = not set(range(self.host.shape[1])[stages]) <= self._entered
        self._entered |= set(range(self.host.shape[1])[stages])
        self.ops.append(op)

    def join(self, stages: slice) -> None:
        """The compute stream waits for the collectives."""
        self.gpu[:, stages] = np.maximum(self.gpu[:, stages], self.side[:, stages])

    def post(self, op: Op, stages: slice, api: Int64s) -> Int64s:
        """A send or receive is enqueued; returns when the GPU reaches it. The other end completes it."""
        enter = self.host[:, stages].copy()
        self._call(stages, api)
        begin: Int64s = np.maximum(self.gpu[:, stages], self.host[:, stages])
        op.ranks = self._ranks(stages)
        op.enter, op.leave, op.begin, op.done = self._times(enter, self.host[:, stages], begin, begin)
        self.ops.append(op)
        return begin

    def synchronize(self, stages: slice, api: Int64s, wake: Int64s) -> None:
        """The host waits until the GPU has done everything."""
        enter = self.host[:, stages].copy()
        reached = np.maximum(self.gpu[:, stages], self.side[:, stages])
        self.host[:, stages] = np.maximum(enter + api, reached) + wake
        self.spent[3][:, stages] += self.host[:, stages] - enter
        times = self._times(enter, self.host[:, stages], enter, self.host[:, stages])
        self.ops.append(Op("sync", "cudaStreamSynchronize", self._ranks(stages), *times))

    def stop_hosts(self, step: int, ranks: Int64s) -> None:
        """These hosts do nothing more in this step."""
        self.host.reshape(len(self.host), -1)[step, ranks] = NEVER

    def carry_over(self) -> None:
        """Give what hosts did after their last collective of a step to the first one of the next."""
        left = [self._flat(part) for part in self.spent]
        for op in self.ops:
            if op.windows is not None and op.is_first:
                for window, part in zip(op.windows, left, strict=True):
                    window[1:] += part[:-1, op.ranks]

    def _enter(self, stages: slice) -> tuple[Int64s, Times]:
        enter = self.host[:, stages].copy()
        cpu, blocked, runq, sync = (self._flat(part[:, stages].copy()) for part in self.spent)
        for part in self.spent:
            part[:, stages] = 0
        return enter, (cpu, blocked, runq, sync)

    def _call(self, stages: slice, api: Int64s) -> None:
        self.host[:, stages] += api
        self.spent[0][:, stages] += api

    def _ranks(self, stages: slice) -> Int64s:
        _, *shape = self.host.shape
        return np.arange(np.prod(shape)).reshape(shape)[stages].reshape(-1)

    def _times(self, enter: Int64s, leave: Int64s, begin: Int64s, done: Int64s) -> Times:
        return self._flat(enter), self._flat(leave), self._flat(begin), self._flat(done)

    def _flat(self, part: Int64s) -> Int64s:
        # A copy: what is recorded must not move on with the clocks.
        return np.array(part).reshape(len(part), -1)
