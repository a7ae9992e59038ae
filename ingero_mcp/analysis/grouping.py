"""Medians by group, without sorting every time: the order of the groups is found once, values come later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from ingero_mcp.analysis.calls import Floats, Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Elements by group. `named` are the groups, ascending; `number` is the place of each element's group in them."""

    named: Int64s
    number: Int64s
    sizes: Int64s
    _order: Int64s
    _starts: Int64s

    @classmethod
    def of(cls, group: Int64s) -> Self:
        """The grouping of elements by a number."""
        order = np.argsort(group)
        ordered = group[order]
        is_first = np.ones(len(group), np.bool_)
        is_first[1:] = ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(is_first)
        number = np.empty(len(group), np.int64)
        number[order] = np.cumsum(is_first) - 1
        return cls(ordered[starts], number, np.diff(starts, append=len(group)), order, starts)

    @classmethod
    def of_runs(cls, starts: Int64s, total: int) -> Self:
        """The grouping of `total` elements of which each group is a run that begins at one of `starts`."""
        sizes = np.diff(starts, append=total)
        named = np.arange(len(starts))
        return cls(named, np.repeat(named, sizes), sizes, np.arange(total), starts)

    def members(self) -> list[Int64s]:
        """The positions of the elements of each group."""
        ends = np.append(self._starts[1:], len(self._order))
        return [self._order[first:end] for first, end in zip(self._starts, ends, strict=False)]

    def medians(self, values: Floats) -> Floats:
        """The median of each group."""
        ordered = values[self._order]
        result = np.empty(len(self.sizes))
        for size in np.flatnonzero(np.bincount(self.sizes)).tolist():
            chosen = np.flatnonzero(self.sizes == size)
            rows = ordered[self._starts[chosen][:, None] + np.arange(size)]
            low, high = (size - 1) // 2, size // 2
            if size > 2:
                rows.partition((low, high), axis=1)
            result[chosen] = (rows[:, low] + rows[:, high]) / 2
        return result
