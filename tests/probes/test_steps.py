"""Steps from markers, else from the period of the collectives."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_probes.steps import Period, StepClock


def period_of(sequence: Iterable[object]) -> Period:
    period = Period()
    for signature in sequence:
        period.add(signature)
    return period


def test_one_collective_per_step_after_a_broadcast_of_weights() -> None:
    period = period_of(["weights", "weights"] + ["gradients"] * 42)
    assert period.length == 1
    assert [period.place_of(position) for position in (1, 2, 43)] == [None, (0, True), (41, True)]


def test_layers_make_runs_that_are_no_steps() -> None:
    step = ["gather"] * 48 + ["scatter"] * 48 + ["norm"]
    period = period_of(step * 6)
    assert period.length == 97
    first, last = period.place_of(0), period.place_of(len(step) * 6 - 1)
    assert first is not None and last is not None
    assert (last[0] - first[0], first[1], last[1]) == (5, False, True)


def test_an_evaluation_between_makes_later_steps_later_numbers() -> None:
    loop = ["x", "y", "z"]
    period = period_of(loop * 100 + ["eval"] * 5 + loop * 100)
    assert period.length == 3
    before, after = 99, period.place_of(3 * 200 + 4)
    assert after is not None and after[0] > before


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 7))
def test_any_loop_is_found_and_counts_its_rounds(step: list[int], lead: int) -> None:
    period = period_of([("lead", number) for number in range(lead)] + step * 80)
    assert period.length is not None and len(step) % period.length == 0
    end = lead + len(step) * 80 - 1
    last, round_before = period.place_of(end), period.place_of(end - period.length)
    assert last is not None and round_before is not None
    assert last[1] and last[0] == round_before[0] + 1


def test_what_is_not_periodic_has_no_steps() -> None:
    period = period_of(range(3000))
    assert period.length is None and period.place_of(2999) is None


def test_a_step_ends_with_the_first_synchronize_after_its_last_collective() -> None:
    clock = StepClock()
    moments = []
    for _ in range(20):
        moments.append(("work", clock.now()))
        clock.collective("gradients")
        moments.append(("wait", clock.now()))
        clock.synchronized()
    steps = [(what, clock.step_of(moment)) for what, moment in moments]
    # Nothing tells what came before the first collective from the set-up of the job.
    assert steps[0] == ("work", None)
    assert steps[1:5] == [
        ("wait", (0, "period")), ("work", (1, "period")), ("wait", (1, "period")), ("work", (2, "period"))
    ]  # fmt: skip


def test_a_marker_beats_the_period() -> None:
    clock = StepClock()
    clock.mark(700)
    for _ in range(20):
        clock.collective("gradients")
    assert clock.step_of(clock.now()) == (700, "marker")
    assert not clock.is_undecided
