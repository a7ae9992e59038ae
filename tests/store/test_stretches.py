"""Where a count of collectives fell back, whatever the order in which its calls arrive."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.store.stretches import MOST, MOST_EPOCHS, Stretch, epochs, join, place

S = 1_000_000_000
Calls = list[tuple[int, int]]


def put(*batches: Calls) -> list[Stretch]:
    """The stretches of batches of (time_ns, seq), each in order of time, as they arrive."""
    stretches: list[Stretch] = []
    for batch in batches:
        for time_ns, seq in sorted(batch):
            place(stretches, time_ns, seq)
        join(stretches)
    return stretches


def begins(*batches: Calls) -> list[int]:
    """When the epochs after the first begin."""
    return [epoch.from_ns for epoch in epochs(put(*batches))[1:]]


def run(start_ns: int, first: int, last: int, every_ns: int = S // 100) -> Calls:
    return [(start_ns + (seq - first) * every_ns, seq) for seq in range(first, last + 1)]


def test_a_count_that_only_grows_is_one_epoch() -> None:
    assert begins(run(0, 0, 99), run(2 * S, 100, 250)) == []


def test_a_count_that_falls_back_begins_an_epoch() -> None:
    assert begins(run(0, 0, 500), run(60 * S, 0, 20), run(99 * S, 0, 20)) == [60 * S, 99 * S]


def test_it_may_fall_back_to_anything_and_at_once() -> None:
    assert begins([*run(0, 0, 500), *run(60 * S, 300, 320)]) == [60 * S]
    assert begins([*run(0, 0, 9, every_ns=10), *run(100, 0, 9, every_ns=10)]) == [100]


@pytest.mark.parametrize("pause_ns", [0, 60 * S])
def test_an_older_batch_is_no_restart(pause_ns: int) -> None:
    parts = [run(0, 0, 99), run(pause_ns + S, 100, 199), run(2 * (pause_ns + S), 200, 299)]
    for order in ((0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1)):
        assert begins(*(parts[place_] for place_ in order)) == []


def test_the_same_batch_again_is_no_restart() -> None:
    calls = [*run(0, 0, 99), (S - 5, 101), (S, 100)]
    assert begins(calls, calls, run(2 * S, 102, 110), calls) == []


def test_threads_may_pass_each_other() -> None:
    assert begins([(100, 0), (101, 2), (102, 1), (103, 4), (104, 3)]) == []
    assert begins([(100, 10)], [(101, 12)], [(102, 11)], [(99, 9)]) == []
    assert begins([(100, 10), (101, 11)], [(99, 12)]) == []


def test_runs_that_are_read_in_the_wrong_order_are_still_two() -> None:
    older, newer = run(0, 100, 2100), run(3600 * S, 500, 2500)
    parts = [older[:700], older[700:], newer[:700], newer[700:]]
    for order in ((0, 1, 2, 3), (2, 3, 0, 1), (2, 0, 3, 1), (3, 2, 1, 0)):
        assert begins(*(parts[place_] for place_ in order)) == [3600 * S]


def test_what_is_remembered_stays_small_where_calls_are_sampled() -> None:
    stretches = put(*([(number * 60 * S, number * 10)] for number in range(1000)))
    assert len(stretches) <= MOST
    assert len(epochs(stretches)) == 1


def test_a_count_that_is_none_takes_neither_memory_nor_time() -> None:
    stretches = put(*([(number * 60 * S, number % 2)] for number in range(3000)))
    assert len(stretches) <= MOST_EPOCHS
    assert epochs(stretches)[-1].from_ns == 2998 * 60 * S


@dataclass(frozen=True)
class History:
    """Lives of a communicator as batches in the order of their arrival, and when each life but the first began."""

    batches: list[Calls]
    begins: list[int]


@st.composite
def histories(draw: st.DrawFn) -> History:
    batches: list[Calls] = []
    begun: list[int] = []
    clock = 0
    for _ in range(draw(st.integers(1, 4))):
        clock += draw(st.integers(15, 5000)) * S
        length = draw(st.integers(70, 300))
        calls = run(clock, 0, length)
        begun.append(clock)
        clock = calls[-1][0]
        lost = draw(st.sets(st.integers(1, length - 1), max_size=10))
        kept = [call for call in calls if call[1] not in lost]
        size = draw(st.integers(20, 100))
        cut = [kept[at : at + size] for at in range(0, len(kept), size)]
        swap = draw(st.integers(0, len(cut) - 1))
        cut[swap : swap + 2] = reversed(cut[swap : swap + 2])
        again = draw(st.integers(0, len(cut)))
        batches += cut[:again] + cut[max(0, again - 1) : again] + cut[again:]
    return History(batches, begun[1:])


@settings(deadline=None)
@given(histories())
def test_every_restart_is_found_whatever_is_lost_late_or_sent_again(history: History) -> None:
    assert begins(*history.batches) == history.begins
