"""The families of incidents: which jobs they hit and how they are planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ingero_mcp.synth.scenario import controls, doubles, hangs, slow_gpus, slow_hosts, unseen, untold
from ingero_mcp.synth.scenario.draft import Draft, Ground
from ingero_mcp.synth.scenario.job import DATA_PARALLEL, MIXED, PIPELINES, SHAPES, TENSOR, Shape
from ingero_mcp.synth.scenario.truth import VIEWS, View


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of incident. `is_slow` says that severity means something: multiples of the spread in an affected step.

    `is_steady` says that it is there in nearly all steps from its onset on; `views` are those for which it was made.
    """

    name: str
    plant: Callable[[Ground], Draft]
    shapes: tuple[Shape, ...] = SHAPES
    is_slow: bool = True
    is_steady: bool = False
    views: tuple[View, ...] = VIEWS


def _several_hosts(shapes: tuple[Shape, ...], least: int) -> tuple[Shape, ...]:
    return tuple(shape for shape in shapes if shape[3] >= least and shape[0] * shape[1] * shape[2] > shape[3])


_WIDE: Final = _several_hosts(SHAPES, 3)
_LINKED: Final = _several_hosts((*PIPELINES, *TENSOR, *MIXED, *DATA_PARALLEL), 2)
_WHOLE: Final = tuple(shape for shape in (*DATA_PARALLEL, *PIPELINES) if shape[1] >= 3)

_TWO: Final[tuple[Shape, ...]] = ((1, 2, 1, 1), (1, 2, 1, 2))
_SPREAD_OUT: Final = _several_hosts(DATA_PARALLEL, 2)


def _named(*families: Family) -> dict[str, Family]:
    return {family.name: family for family in families}


FAMILIES: Final = _named(
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
"""F1 to F18."""

UNSEEN: Final = _named(
    Family("U1", unseen.cpu_quota, is_steady=True),
    Family("U2", unseen.swapping, _WIDE, is_steady=True),
)
"""Families that no rule was tuned on."""

DOUBLES: Final = _named(
    Family("M1", doubles.steady_and_recurring),
    Family("M2", doubles.two_recurring),
    Family("M3", doubles.one_after_the_other),
    Family("M4", doubles.rank_and_link, _LINKED),
    Family("M5", doubles.gpu_and_host),
)
"""Two incidents in one run."""

UNTOLD: Final = _named(
    Family("N1", untold.one_rank, (*DATA_PARALLEL, *PIPELINES), is_slow=False),
    Family("N2", untold.two_ranks, _TWO, is_slow=False),
    Family("N3", untold.enqueued_only, _SPREAD_OUT, is_slow=False, views=("probe",)),
    Family("N4", untold.below_noise, is_slow=False),
)
"""Nobody can tell from what was recorded."""

EVERY: Final = FAMILIES | UNSEEN | DOUBLES | UNTOLD
