"""Distinct values are those that sorting would find, whatever the range."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp.analysis.distinct import distinct, distinct_and_place


@given(st.lists(st.integers(0, 50) | st.integers(0, 10**12), max_size=50))
def test_values_and_places_are_those_of_sorting(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    found, place = distinct_and_place(array)
    assert found.tolist() == sorted(set(values)) == distinct(array).tolist()
    assert found[place].tolist() == values
