"""How durations scatter: shapes of real runs, from which a scenario draws.

A shape is a handful of quantiles of a duration relative to its usual value, centred and divided by its robust sigma
(1.4826 times the median absolute deviation), so that a job can be given any sigma.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_LEVELS: Final = (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
# Work of a process of the stand-in training job on the CPU between two collectives.
_HOST: Final = (-2.0, -1.7, -1.4, -1.15, -0.84, -0.58, -0.25, 0.0, 0.25, 0.58, 0.84, 1.45, 2.1, 4.1, 5.2)
# Forward and backward work per step of a rank of a Megatron job, against its peers in the same step.
_GPU: Final = (-4.2, -3.2, -1.7, -1.2, -0.83, -0.45, -0.17, 0.0, 0.15, 0.48, 0.86, 1.6, 2.5, 3.8, 4.6)
# A rank's usual work against that of others in its role, in parts of the sigma of its steps.
_BIAS: Final = (-1.3, -1.25, -1.0, -0.65, -0.36, -0.22, -0.17, 0.0, 0.17, 0.3, 0.9, 1.45, 1.5, 1.6, 1.7)
# The whole job in one step against the usual: other samples, another time of day.
_COMMON: Final = (-7.2, -6.9, -6.1, -5.0, -0.75, -0.4, -0.28, 0.0, 0.36, 0.5, 0.9, 1.25, 1.65, 1.95, 2.0)


@dataclass(frozen=True, slots=True)
class Tail:
    """Now and then a value is much larger: `share` of them, by `size` sigmas and more (exponential)."""

    share: float = 0.0
    size: float = 0.0


def host_shape(random: np.random.Generator, shape: tuple[int, ...], tail: Tail) -> Floats:
    """Standardised deviations of host work."""
    return _draw(random, shape, _HOST, tail)


def gpu_shape(random: np.random.Generator, shape: tuple[int, ...], tail: Tail) -> Floats:
    """Standardised deviations of GPU work."""
    return _draw(random, shape, _GPU, tail)


def bias_shape(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """How much a rank differs from its peers all the time, in sigmas of a step."""
    return 0.3 * _draw(random, shape, _BIAS, Tail())


def common_shape(random: np.random.Generator, steps: int) -> Floats:
    """Standardised deviations that all ranks share in a step."""
    return _draw(random, (steps,), _COMMON, Tail())


def _draw(random: np.random.Generator, shape: tuple[int, ...], quantiles: tuple[float, ...], tail: Tail) -> Floats:
    drawn: Floats = np.interp(random.random(shape), _LEVELS, quantiles)
    if tail.share:
        hit = random.random(shape) < tail.share
        drawn = drawn + hit * tail.size * (0.5 + random.exponential(0.5, shape))
    return drawn
