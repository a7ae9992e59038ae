"""Which generated cases the accuracy is measured on: families, severities, views, seeds; a quarter of them clean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ingero_mcp.synth.scenario import DOUBLES, EVERY, FAMILIES, UNSEEN, UNTOLD, VIEWS, View

SEVERITIES: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
"""Multiples of the job's own spread."""
HELD_OUT: Final = 10_000
"""Seeds from here on are never used while tuning; those below 1,000 are for it."""
BIG: Final = 3.0
"""The goals hold from this severity upward."""
CLEAN: Final = ("F17", "F18")
_HANG_SEEDS: Final = 3
# So many that a quarter of all cases are clean.
_CLEAN_SHARE: Final = 0.27


@dataclass(frozen=True, slots=True)
class Spec:
    """The arguments of one generated case."""

    family: str
    seed: int
    severity: float
    view: View


def suite(
    seeds: Sequence[int],
    families: Sequence[str] = tuple(FAMILIES),
    severities: Sequence[float] = SEVERITIES,
    views: Sequence[View] = VIEWS,
) -> list[Spec]:
    """The cases. Families without a severity get more seeds in its place, the next ones after `seeds`."""
    faults = [spec for family in families if family not in CLEAN for spec in _of(family, seeds, severities, views)]
    clean = [family for family in families if family in CLEAN]
    wanted = max(len(seeds), round(len(faults) * _CLEAN_SHARE / (1 - _CLEAN_SHARE) / max(1, len(clean) * len(views))))
    return faults + [Spec(family, seeds[0] + n, 0.0, view) for family in clean for view in views for n in range(wanted)]


def beside(seeds: Sequence[int], severities: Sequence[float] = SEVERITIES, views: Sequence[View] = VIEWS) -> list[Spec]:
    """The cases beside them: unseen families, two incidents in one run, and what cannot be told."""
    big = [severity for severity in severities if severity >= BIG]
    families = (*UNSEEN, *DOUBLES, *UNTOLD)
    # A run with two incidents is simulated four times.
    fewer = seeds[: (len(seeds) + 1) // 2]
    return [spec for family in families for spec in _of(family, fewer if family in DOUBLES else seeds, big, views)]


def _of(family: str, seeds: Sequence[int], severities: Sequence[float], views: Sequence[View]) -> Iterator[Spec]:
    for view in [view for view in views if view in EVERY[family].views]:
        if EVERY[family].is_slow:
            yield from (Spec(family, seed, severity, view) for severity in severities for seed in seeds)
        else:
            yield from (Spec(family, seeds[0] + n, 5.0, view) for n in range(_HANG_SEEDS * len(seeds)))
