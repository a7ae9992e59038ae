"""The families of incidents, F1 to F18: which jobs they hit and how they are planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ingero_mcp.synth.scenario import controls, hangs, slow_gpus, slow_hosts
from ingero_mcp.synth.scenario.draft import Draft, Ground
from ingero_mcp.synth.scenario.job import DATA_PARALLEL, MIXED, PIPELINES, SHAPES, TENSOR, Shape


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of incident. `is_slow` says that severity means something: multiples of the spread in an affected step.

    `is_steady` says that it is there in nearly all steps from its onset on.
    """

    name: str
    plant: Callable[[Ground], Draft]
    shapes: tuple[Shape, ...] = SHAPES
    is_slow: bool = True
    is_steady: bool = False


def _several_hosts(shapes: tuple[Shape, ...], least: int) -> tuple[Shape, ...]:
    return tuple(shape for shape in shapes if shape[3] >= least and shape[0] * shape[1] * shape[2] > shape[3])


_WIDE: Final = _several_hosts(SHAPES, 3)
_LINKED: Final = _several_hosts((*PIPELINES, *TENSOR, *MIXED, *DATA_PARALLEL), 2)
_WHOLE: Final = tuple(shape for shape in (*DATA_PARALLEL, *PIPELINES) if shape[1] >= 3)

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        Family("F1", slow_hosts.data_loader),
        Family("F2", slow_hosts.cpu_contention, is_steady=True),
        Family("F3", slow_hosts.gc_pause),
        Family("F4", slow_hosts.allocator_retry),
        Family("F5", slow_gpus.gpu_throttle, is_steady=True),
        Family("F6", hangs.gpu_fault, is_slow=False),
        Family("F7", slow_gpus.network, _LINKED, is_steady=True),
        Family("F8", slow_hosts.pcie_numa, _WIDE, is_steady=True),
        Family("F9", slow_hosts.checkpoint),
        Family("F10", hangs.mismatched_collective, _WHOLE, is_slow=False),
        Family("F11", hangs.early_exit, is_slow=False),
        Family("F12", slow_gpus.sequence_imbalance, is_steady=True),
        Family("F13", slow_gpus.stage_imbalance, (*PIPELINES, *MIXED), is_steady=True),
        Family("F14", slow_hosts.compile_warmup),
        Family("F15", slow_hosts.host_jitter, _WIDE),
        Family("F16", hangs.host_hang, is_slow=False),
        Family("F17", controls.clock_skew, _several_hosts(SHAPES, 2), is_slow=False, is_steady=True),
        Family("F18", controls.healthy, is_slow=False, is_steady=True),
    )
}
