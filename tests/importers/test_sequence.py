"""Operations are numbered per channel in the order in which a first rank entered them."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp.importers.sequence import number


class Row(NamedTuple):
    channel: int
    operation: int
    rank: int
    start_ns: int
    end_ns: int


@st.composite
def traces(draw: st.DrawFn) -> list[Row]:
    """Operations 0, 1, 2, ... on three channels, each with rows of one to four ranks, in any order."""
    rows = []
    for operation, channel in enumerate(draw(st.lists(st.integers(0, 2), max_size=12))):
        for rank in draw(st.sets(st.integers(0, 3), min_size=1)):
            start = draw(st.integers(0, 50))
            rows.append(Row(channel, operation, rank, start, start + draw(st.integers(0, 50))))
    return draw(st.permutations(rows))


def table(rows: list[Row]) -> pa.Table:
    return pa.table({name: pa.array([getattr(row, name) for row in rows], pa.int64()) for name in Row._fields})


@given(traces())
def test_numbers_count_the_operations_of_a_channel_by_first_entry(rows: list[Row]) -> None:
    first: dict[int, tuple[int, int]] = {}
    for row in rows:
        first[row.operation] = min(
            first.get(row.operation, (row.start_ns, row.operation)), (row.start_ns, row.operation)
        )
    expected = []
    for row in rows:
        earlier = {other.operation for other in rows if other.channel == row.channel}
        expected.append(sum(first[operation] < first[row.operation] for operation in earlier))
    assert number(table(rows)).numbers.to_pylist() == expected


@given(traces())
def test_what_does_not_fit_together_is_counted(rows: list[Row]) -> None:
    members: dict[int, list[Row]] = {}
    ranks: dict[int, set[int]] = {}
    for row in rows:
        members.setdefault(row.operation, []).append(row)
        ranks.setdefault(row.channel, set()).add(row.rank)
    found = number(table(rows))
    assert found.operations == len(members)
    assert found.incomplete == sum(len(group) < len(ranks[group[0].channel]) for group in members.values())
    assert found.apart == sum(
        max(row.start_ns for row in group) > min(row.end_ns for row in group) for group in members.values()
    )
