"""Incidents: what is planted into noise is found where it is, and noise alone is none."""

from __future__ import annotations

import numpy as np
import pytest

from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.incident import Incident, period_of
from ingero_mcp.analysis.incidents import find_incidents
from ingero_mcp.analysis.robust import spread


def found(excess: Floats, total: float = 1e6) -> tuple[Incident, ...]:
    rows = excess.shape[1]
    return find_incidents(excess, np.ones(rows), np.full(rows, 1.25), total)


def normal(steps: int, rows: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(steps, rows))


def test_noise_of_many_jobs_is_hardly_ever_an_incident() -> None:
    assert sum(bool(found(normal(100, 8, seed))) for seed in range(100)) <= 2


def test_heavy_tails_are_no_incident() -> None:
    named = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        excess = random.normal(size=(150, 8)) + (random.random((150, 8)) < 0.02) * random.exponential(15, (150, 8))
        named += bool(found(excess))
    assert named <= 2


@pytest.mark.parametrize("cost", [20.0, 60.0, 500.0])
def test_a_single_hiccup_is_no_incident_whatever_it_cost(cost: float) -> None:
    excess = normal(150, 8)
    excess[40, 3] += cost
    excess[90, 5] += cost
    assert found(excess, 150 * 100.0) == ()


@pytest.mark.parametrize("period", [6, 8, 13, 24])
def test_a_comb_is_found_with_its_period_and_its_first_step(period: int) -> None:
    excess = normal(150, 8)
    excess[5::period, 2] += 8.0
    (incident,) = found(excess)
    assert (incident.row, incident.period, incident.steps[0]) == (2, period, 5)
    assert incident.excess == pytest.approx(8.0, abs=1.5)


@pytest.mark.parametrize(("first", "length"), [(0, 150), (60, 90), (40, 8), (130, 20)])
def test_a_stretch_is_found_where_it_is(first: int, length: int) -> None:
    excess = normal(150, 8, seed=3)
    excess[first : first + length, 6] += 5.0
    (incident,) = found(excess)
    assert (incident.row, incident.shape) == (6, "stretch")
    assert abs(int(incident.steps[0]) - first) <= 2
    assert abs(int(incident.steps[-1]) - (first + length - 1)) <= 2


def test_a_stretch_of_a_long_run_is_found_to_the_step() -> None:
    excess = normal(5000, 4, seed=1)
    excess[1234:3333, 1] += 6.0
    (incident,) = found(excess)
    assert abs(int(incident.steps[0]) - 1234) <= 1
    assert abs(int(incident.steps[-1]) - 3332) <= 1


def test_rows_that_have_it_in_turn_are_all_found() -> None:
    excess = normal(120, 6, seed=2)
    for row in range(6):
        excess[row + 1 :: 12, row] += 12.0
    assert {incident.row for incident in found(excess)} == set(range(6))


def test_what_recurs_in_time_is_found_though_not_in_equal_steps() -> None:
    excess = normal(150, 8, seed=4)
    steps = np.array([7, 15, 24, 32, 41, 50, 58, 67, 75, 84, 93, 101, 110, 118, 127, 136, 144])
    excess[steps, 1] += 12.0
    (incident,) = found(excess)
    assert incident.row == 1
    assert set(incident.steps.tolist()) == set(steps.tolist())


@pytest.mark.parametrize("seed", range(20))
def test_three_stalls_of_one_row_are_found_on_a_machine_that_is_never_quiet(seed: int) -> None:
    excess = np.clip(3 * np.random.default_rng(seed).standard_t(1.5, (42, 8)), -110, 110)
    excess[[13, 27, 41], 5] += 290
    (incident,) = found(excess / spread(excess), 42 * 16.0)
    assert (incident.row, incident.period) == (5, 14)
    assert incident.steps.tolist() == [13, 27, 41]


def test_three_stalls_spread_over_rows_are_no_incident() -> None:
    excess = np.clip(3 * np.random.default_rng(0).standard_t(1.5, (42, 8)), -110, 110)
    excess[[13, 27, 41], [5, 2, 7]] += 290
    assert found(excess / spread(excess), 42 * 16.0) == ()


def test_what_recurs_in_time_is_found_though_no_single_time_stands_out() -> None:
    excess = normal(90, 8)
    steps = np.floor(3 + 7.4 * np.arange(11)).astype(np.int64)
    excess[steps, 4] += 3.2
    (incident,) = found(excess)
    assert (incident.row, incident.shape, incident.period) == (4, "comb", None)
    assert len(set(incident.steps.tolist()) & set(steps.tolist())) >= 9


def test_of_few_rows_one_has_to_have_more_of_it_than_of_many() -> None:
    def with_rows(rows: int) -> tuple[Incident, ...]:
        excess = np.zeros((200, rows))
        excess[[11, 30, 74, 101, 166], 0] = 4.0
        excess[[50, 90], [1, 1]] = 3.5
        return found(excess, 1e9)

    assert with_rows(3) == ()
    assert [incident.row for incident in with_rows(24)] == [0]


def test_a_little_more_than_the_others_for_good_is_no_incident() -> None:
    excess = normal(500, 8)
    excess[:, 4] += 0.8
    assert found(excess) == ()


def test_more_rows_and_another_order_of_rows_do_not_change_who_it_is() -> None:
    excess = normal(100, 32, seed=7)
    excess[30:, 9] += 4.0
    order = np.random.default_rng(0).permutation(32)
    (incident,) = found(excess[:, order])
    assert order[incident.row] == 9


def test_unknown_steps_are_left_out() -> None:
    excess = normal(100, 8)
    excess[30:, 2] += 6.0
    excess[::5] = np.nan
    (incident,) = found(excess)
    assert incident.row == 2
    assert not set(incident.steps.tolist()) & set(range(0, 100, 5))


def test_nothing_is_found_in_nothing() -> None:
    assert found(np.zeros((0, 4))) == ()
    assert found(np.zeros((4, 0))) == ()
    assert found(np.full((50, 4), np.nan)) == ()
    assert spread(np.full(4, np.nan)) == 0.0


@pytest.mark.parametrize(
    ("steps", "period"),
    [((4, 8, 12, 16), 4), ((4, 8, 16, 20), 4), ((4, 9, 13, 20), None), ((3, 4, 5), None), ((1, 9), None)],
)
def test_a_period_is_the_usual_distance_of_which_all_are_multiples(steps: tuple[int, ...], period: int | None) -> None:
    assert period_of(np.array(steps)) == period
