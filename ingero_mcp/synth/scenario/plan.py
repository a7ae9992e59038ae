"""What goes wrong in a run, as arrays that the simulation adds to its durations, and as events that go with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from ingero_mcp.synth.scenario.layout import Comm, Layout

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Symptom = Literal[
    "data_wait", "contention", "gc", "alloc", "checkpoint", "compile", "host_jitter", "throttle", "xid", "retransmit",
    "quota", "swap", "other",
]  # fmt: skip
StopKind = Literal["gpu", "host", "exit", "mismatch"]


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a run: at `step` (from 0) the ranks stop.

    `gpu`: a kernel never ends, the host goes on until it waits for it. `host`: the process falls silent. `exit`: it
    ends. `mismatch`: it calls something else than its peers on communicator kind `comm`. `after` is how many of the
    step's collectives the ranks still take part in.
    """

    kind: StopKind
    step: int
    ranks: tuple[int, ...]
    after: int = 0
    timeout_ns: int = 60_000_000_000


@dataclass(slots=True)
class Plan:
    """What is planted; arrays have the shape (steps, ranks).

    `cpu_ns`, `blocked_ns` and `runq_ns` come on top of what the host does before the first launch of a step,
    `launch_runq_ns` is spread over its launches. `gpu_factor` multiplies the work of the GPU.
    `transfer_factor` (steps,) multiplies the transfers of the communicators for which `is_slow` says so.
    """

    cpu_ns: Int64s
    blocked_ns: Int64s
    runq_ns: Int64s
    launch_runq_ns: Int64s
    gpu_factor: Floats
    transfer_factor: Floats
    is_slow: Callable[[Layout, Comm], bool] | None = None
    stop: Stop | None = None
    symptom: Symptom = "other"
    link: tuple[int, int] | None = None
    """The two hosts of a slow link."""
    parts: tuple[Plan, ...] = ()
    """The plans that this one was merged from."""

    @property
    def layers(self) -> tuple[Plan, ...]:
        """Each thing that is planted, with its own symptom."""
        return self.parts or (self,)

    def shows(self, symptom: Symptom) -> bool:
        """Whether one of its layers has this symptom."""
        return any(layer.symptom == symptom for layer in self.layers)

    @property
    def extra_ns(self) -> Int64s:
        """All host time that is planted, (steps, ranks)."""
        total: Int64s = self.cpu_ns + self.blocked_ns + self.runq_ns + self.launch_runq_ns
        return total


def nothing(steps: int, ranks: int) -> Plan:
    """A healthy run."""

    def zeros() -> Int64s:
        return np.zeros((steps, ranks), np.int64)

    return Plan(zeros(), zeros(), zeros(), zeros(), gpu_factor=np.ones((steps, ranks)), transfer_factor=np.ones(steps))


def merged(plans: tuple[Plan, ...]) -> Plan:
    """Several incidents in one run. At most one of them may slow down links, and none may stop the run."""
    whole = nothing(*plans[0].cpu_ns.shape)
    for one in plans:
        whole.cpu_ns += one.cpu_ns
        whole.blocked_ns += one.blocked_ns
        whole.runq_ns += one.runq_ns
        whole.launch_runq_ns += one.launch_runq_ns
        whole.gpu_factor += one.gpu_factor - 1
        whole.transfer_factor += one.transfer_factor - 1
    linked = next((one for one in plans if one.is_slow is not None), None)
    is_slow, link = (linked.is_slow, linked.link) if linked else (None, None)
    return replace(whole, is_slow=is_slow, link=link, parts=plans)
