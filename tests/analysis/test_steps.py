"""Steps: where the events do not name them, they follow from what repeats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingero_mcp.analysis.calls import Calls
from ingero_mcp.analysis.steps import find_steps
from tests.analysis.slow_job import MS, calls, merged, noise


def per_step(work_ms: float, sizes: tuple[int, ...], steps: int = 40, ranks: int = 4) -> Calls:
    """Several collectives in each step, of different sizes, without the step's number."""
    made = calls(np.full((steps * len(sizes), ranks), work_ms), named=False)
    return replace(made, bytes=np.array(sizes)[made.seq % len(sizes)])


def test_steps_are_those_that_the_events_name() -> None:
    made = calls(noise(20, 4))
    steps = find_steps(replace(made, step=made.step + 700))
    assert steps.source == "named"
    assert steps.numbers.tolist() == list(range(700, 720))
    assert np.nanmedian(steps.duration_ns) == pytest.approx(103 * MS, rel=0.02)


@pytest.mark.parametrize("sizes", [(64, 8), (64, 64, 8), (64, 32, 64, 32, 8)])
def test_the_period_of_sizes_is_a_step(sizes: tuple[int, ...]) -> None:
    steps = find_steps(per_step(10.0, sizes))
    assert (steps.source, len(steps)) == ("period", 40)


def test_events_that_one_rank_lost_do_not_hide_the_period() -> None:
    made = per_step(10.0, (64, 64, 64, 8))
    lost = (made.rank == 0) & (np.random.default_rng(0).random(len(made)) < 0.2)
    steps = find_steps(made.where(~lost))
    assert (steps.source, len(steps)) == ("period", 40)


def test_of_every_third_collective_the_period_is_still_seen() -> None:
    made = per_step(10.0, (64, 64, 64, 8), steps=60)
    steps = find_steps(made.where(made.seq % 3 == 0))
    assert (steps.source, len(steps)) == ("period", 60)


def test_equal_collectives_are_told_apart_by_their_rhythm() -> None:
    work = np.tile(np.array([90.0, 5.0, 6.0, 7.0])[:, None], (30, 4)) + noise(120, 4, sigma=0.1) - 100
    steps = find_steps(calls(work, named=False))
    assert (steps.source, len(steps)) == ("period", 30)


def test_without_any_period_each_collective_is_a_step() -> None:
    steps = find_steps(calls(noise(50, 4), named=False))
    assert (steps.source, len(steps)) == ("collective", 50)


def test_a_rank_that_is_late_now_and_then_makes_no_rhythm_where_other_calls_mark_the_step() -> None:
    work = noise(84, 4)
    for rank in range(4):
        work[rank * 3 :: 12, rank] += 60
    world = calls(work, named=False)
    other = replace(world, enter_ns=world.enter_ns - MS, done_ns=world.done_ns - MS, seq=world.seq * 2)
    assert len(find_steps(merged(world, other))) == 84


def test_ranks_that_lost_events_take_the_same_communicator_for_the_beat_as_the_others() -> None:
    world = calls(noise(50, 4), named=False)
    other = replace(world, enter_ns=world.enter_ns - MS, done_ns=world.done_ns - MS)
    both = merged(world, other)
    lost = (both.rank == 2) & (both.comm == 1) & (both.seq == 20)
    whole, made = find_steps(both), find_steps(both.where(~lost))
    assert np.array_equal(made.of_call, whole.of_call[~lost])


def test_no_calls_have_no_steps() -> None:
    assert len(find_steps(calls(noise(4, 2)).where(np.zeros(0, dtype=np.int64)))) == 0
