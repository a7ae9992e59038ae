"""Quantiles of durations of which a recorder kept the slow ones and only counted the others."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

FRACTIONS: Final[tuple[float, ...]] = tuple(
    sorted({*(n / 40 for n in range(36)), *(n / 400 for n in range(360, 396)), *(n / 2000 for n in range(1980, 2001))})
)
"""At which the kept durations are known: coarse below, fine above, where the kept ones are."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """`kept` durations with their quantiles at FRACTIONS, and `counted` further ones with the sum `counted_ns`."""

    kept: int
    quantiles_ns: Sequence[int]
    counted: int
    counted_ns: int

    @property
    def count(self) -> int:
        """All of them."""
        return self.kept + self.counted

    def quantile_ns(self, share: float) -> int:
        """The duration that `share` of all do not exceed (nearest rank). Those that were only counted stand at their
        mean: each was found to be too usual to be kept."""
        if not self.counted:
            return self._kept_ns(ceil(share * self.kept))
        mean_ns = self.counted_ns // self.counted
        below = self._rank_of(mean_ns)
        rank = max(ceil(share * self.count), 1)
        if rank <= below:
            return self._kept_ns(rank)
        return mean_ns if rank <= below + self.counted else self._kept_ns(rank - self.counted)

    def _kept_ns(self, rank: int) -> int:
        """The duration at a rank from 1 among those that were kept; as exact as FRACTIONS are fine."""
        if not self.kept:
            return 0
        place = bisect_left(FRACTIONS, min(max(rank / self.kept, 0.0), 1.0) - 1e-9)
        return int(self.quantiles_ns[min(place, len(FRACTIONS) - 1)])

    def _rank_of(self, ns: int) -> int:
        """How many of those that were kept are shorter."""
        if not self.kept:
            return 0
        shorter = sum(fraction_ns < ns for fraction_ns in self.quantiles_ns)
        return round(FRACTIONS[shorter - 1] * self.kept) if shorter else 0
