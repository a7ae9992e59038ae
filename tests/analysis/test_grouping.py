"""Medians of groups are those of numpy, whatever the order of the elements."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp.analysis.grouping import Grouping


@given(st.lists(st.tuples(st.integers(-3, 4), st.floats(-1e9, 1e9)), max_size=40))
def test_medians_of_groups(elements: list[tuple[int, float]]) -> None:
    group = np.array([number for number, _ in elements], np.int64)
    values = np.array([value for _, value in elements], np.float64)
    grouping = Grouping.of(group)
    medians = grouping.medians(values)
    assert grouping.named.tolist() == sorted(set(group.tolist()))
    for number, median, members in zip(grouping.named, medians, grouping.members(), strict=True):
        assert sorted(members) == np.flatnonzero(group == number).tolist()
        assert median == np.median(values[group == number])
    assert (grouping.named[grouping.number] == group).all()


def test_runs_are_groups_in_their_order() -> None:
    grouping = Grouping.of_runs(np.array([0, 2, 3]), 6)
    assert grouping.medians(np.array([1.0, 2.0, 7.0, 5.0, 3.0, 4.0])).tolist() == [1.5, 7.0, 4.0]
    assert grouping.sizes.tolist() == [2, 1, 3]
