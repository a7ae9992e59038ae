"""One measured figure: the median of several repetitions, and how far they lay apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` in `unit`; `low` and `high` are the extremes of the repetitions."""

    name: str
    value: float
    unit: str
    low: float
    high: float

    def __str__(self) -> str:
        value, low, high = (_shown(number) for number in (self.value, self.low, self.high))
        return f"{self.name:<58} {value:>12} {self.unit:<10} ({low} to {high})"


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def measure(name: str, unit: str, once: Callable[[], float], repetitions: int = 5) -> Figure:
    """The figure of `once`, which returns one measurement."""
    values = [once() for _ in range(repetitions)]
    return Figure(name, median(values), unit, min(values), max(values))


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
