"""The same collective has the same number on every rank, whatever the numbers on the wire are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp.analysis.assemble import calls_of, column, looked_up, numbered, with_synchronizes
from tests.analysis.seen import COMM, MS, START_NS, Seen, calls, table

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.integers(0, 5), INT64 | st.integers(0, 50)), max_size=40))
def test_two_calls_have_the_same_number_if_and_only_if_communicator_and_sequence_are_the_same(
    pairs: list[tuple[int, int]],
) -> None:
    comm = np.array([pair[0] for pair in pairs], dtype=np.int64)
    numbers = numbered(comm, np.array([pair[1] for pair in pairs], dtype=np.int64)).tolist()
    assert all(number >= 0 for number in numbers)
    assert len(set(zip(pairs, numbers, strict=True))) == len(set(pairs)) == len(set(numbers))


def test_numbers_stay_small_enough_to_index_with_when_those_on_the_wire_are_far_apart() -> None:
    made = calls([Seen(0, -(2**62)), Seen(0, 2**62), Seen(1, 2**62), Seen(1, 5, comm="other")])
    assert made.collective.max() < 1_000_000
    assert made.collective[1] == made.collective[2]


def test_a_call_that_was_recorded_twice_counts_once() -> None:
    made = calls([Seen(0, 0, 1.0), Seen(1, 0, 2.0), Seen(0, 0, 9.0)])
    assert sorted(zip(made.rank.tolist(), made.enter_ns.tolist(), strict=True)) == [
        (0, START_NS + MS),
        (1, START_NS + 2 * MS),
    ]
    assert made.row.tolist() == [0, 1]


def test_lives_of_a_communicator_are_told_apart_and_keep_its_name() -> None:
    made = calls([Seen(0, 3), Seen(0, 3, epoch=1), Seen(0, 3, comm="other")])
    assert len(set(made.collective.tolist())) == 3
    assert [made.comm_ids[comm] for comm in made.comm] == [COMM, COMM, "other"]


def test_only_gpu_timing_knows_ends_and_waiting_times() -> None:
    seen = [Seen(0, 0, took=4.0), Seen(1, 0, took=None)]
    assert calls(seen).wait_ns.tolist() == [4 * MS, -1]
    assert calls(seen, kernel=False).done_ns.tolist() == [-1, -1]


def test_no_calls_are_no_calls() -> None:
    made = calls([])
    assert len(made) == 0
    assert len(numbered(made.comm, made.seq)) == 0


def test_null_is_unknown() -> None:
    read = pa.table({"x": pa.array([None, 4, 0], pa.int32())})
    assert column(read, "x").tolist() == [-1, 4, 0]


def test_what_a_table_does_not_say_is_unknown() -> None:
    assert looked_up(np.array([3, 9, -5]), {3: 7, 4: 8}).tolist() == [7, -1, -1]
    assert looked_up(np.array([3]), {}).tolist() == [-1]


def synchronizes(*spans: tuple[int, float, float]) -> pa.Table:
    """(rank, begin, end) in milliseconds."""
    return pa.table(
        {
            "rank": pa.array([rank for rank, _, _ in spans], pa.int64()),
            "start_ns": pa.array([START_NS + round(begin * MS) for _, begin, _ in spans], pa.int64()),
            "end_ns": pa.array([START_NS + round(end * MS) for _, _, end in spans], pa.int64()),
        }
    )


def test_the_longest_synchronize_call_before_the_next_collective_tells_the_end_of_one() -> None:
    made = calls([Seen(0, 0, 0.0), Seen(0, 1, 20.0), Seen(1, 0, 0.0)], kernel=False)
    done = with_synchronizes(made, synchronizes((0, 1, 2), (0, 3, 9), (0, 21, 25), (2, 1, 30))).done_ns
    assert done.tolist() == [START_NS + 9 * MS, START_NS + 25 * MS, -1]


def test_of_several_enqueued_collectives_the_last_ends_with_the_synchronize_call() -> None:
    made = calls([Seen(0, seq, seq * 1.0) for seq in range(3)], kernel=False)
    assert with_synchronizes(made, synchronizes((0, 2.5, 8))).done_ns.tolist() == [-1, -1, START_NS + 8 * MS]


def test_a_synchronize_call_before_the_first_collective_says_nothing() -> None:
    made = calls([Seen(0, 0, 10.0)], kernel=False)
    assert with_synchronizes(made, synchronizes((0, 1, 9))).done_ns.tolist() == [-1]
    assert with_synchronizes(made, synchronizes()).done_ns.tolist() == [-1]


@pytest.mark.parametrize("ranks", [1, 3])
def test_large_ranks_and_many_collectives_are_joined_by_sorting(ranks: int) -> None:
    seen = [Seen(rank * 1_000_000, seq * 1_000_000) for seq in range(50) for rank in range(ranks)]
    made = calls_of(table(seen * 2), {}, kernel=True)
    assert len(made) == len(seen)
    assert len(np.unique(made.collective)) == 50
