"""Stragglers: the rank that works longer than its peers is named, and nobody who only waits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.analysis.blame import finding
from ingero_mcp.analysis.calls import Floats
from ingero_mcp.analysis.comparison import compare
from ingero_mcp.analysis.comparison import noise as noise_of
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.analysis.steps import find_steps
from ingero_mcp.analysis.stragglers import (
    Straggler,
    find_stragglers,
    incidents_of,
    without,
)
from tests.analysis.slow_job import MS, alike, calls, evidence, matrix, noise

HOSTS = {rank: f"host-{rank // 4}" for rank in range(32)}


def stragglers(
    work_ms: Floats, roles: Roles | None = None, hosts: dict[int, str] | None = None
) -> tuple[Straggler, ...]:
    roles = roles or alike(work_ms.shape[1])
    comparison = compare(matrix(work_ms), roles, find_steps(calls(work_ms)))
    return find_stragglers(comparison, roles, hosts or {})


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 7), st.integers(0, 1000), st.floats(4, 40))
def test_the_rank_that_is_slowed_is_named_with_how_late_it_is(rank: int, seed: int, late_ms: float) -> None:
    work = noise(80, 8, seed)
    work[20:, rank] += late_ms
    found = stragglers(work)
    assert [one.rank for one in found] == [rank]
    assert found[0].lateness_ns == pytest.approx(late_ms * MS, abs=1.2 * MS)
    assert abs(int(found[0].numbers[0]) - 20) <= 2


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(8)), st.integers(0, 1000))
def test_renaming_ranks_renames_the_culprit(order: list[int], seed: int) -> None:
    work = noise(60, 8, seed)
    work[:, 3] += 8
    assert [one.rank for one in stragglers(work[:, order])] == [order.index(3)]


def test_healthy_jobs_name_nobody() -> None:
    assert [seed for seed in range(40) if stragglers(noise(100, 8, seed))] == []


def test_what_all_ranks_share_is_nobodys_fault() -> None:
    work = noise(100, 8) + 30 * np.random.default_rng(1).random((100, 1))
    work[40:50] += 200
    assert stragglers(work) == ()


def test_an_excess_that_is_nothing_against_a_step_is_none() -> None:
    work = noise(200, 8, sigma=0.01)
    work[:, 2] += 0.2
    assert stragglers(work) == ()


def test_one_of_two_ranks_can_be_told_from_the_other() -> None:
    work = noise(100, 2)
    work[50:, 1] += 10
    assert [one.rank for one in stragglers(work)] == [1]


def test_half_of_the_ranks_may_be_at_fault() -> None:
    work = noise(100, 8)
    work[:, 4:] += 6
    found = stragglers(work, hosts=HOSTS)
    assert sorted(one.rank for one in found) == [4, 5, 6, 7]


def test_ranks_are_compared_with_those_of_their_own_stage_only() -> None:
    work = noise(80, 8)
    work[:, 4:] += 80
    work[:, 1] += 8
    roles = Roles({rank: rank // 4 for rank in range(8)}, named=True)
    assert [one.rank for one in stragglers(work, roles)] == [1]


def test_a_host_that_is_too_little_late_for_one_rank_is_found_by_all_of_its_ranks() -> None:
    work = noise(100, 16, seed=2)
    work[10::10, 8:12] += 3.2
    found = stragglers(work, hosts=HOSTS)
    assert {one.rank for one in found} >= {8, 9, 10}
    assert {one.rank for one in found} <= {8, 9, 10, 11}


def test_a_host_that_holds_a_whole_stage_is_compared_with_its_own_past() -> None:
    work = noise(120, 12)
    work[7::9, 4:8] += 12
    roles = Roles({rank: rank // 4 for rank in range(12)}, named=True)
    found = stragglers(work, roles, HOSTS)
    assert sorted(one.rank for one in found) == [4, 5, 6, 7]
    assert {one.period for one in found} == {9}


def test_where_hosts_are_not_known_a_whole_stage_is_compared_with_its_own_past() -> None:
    work = noise(120, 12)
    work[7::9, 4:8] += 12
    roles = Roles({rank: rank // 4 for rank in range(12)}, named=True)
    assert sorted(one.rank for one in stragglers(work, roles)) == [4, 5, 6, 7]


def test_two_incidents_are_two_and_one_of_a_host_is_one() -> None:
    work = noise(100, 16)
    work[:, 4:8] += 10
    work[5::12, 15] += 40
    made = evidence(calls(work), hosts=HOSTS)
    groups = incidents_of(stragglers(work, hosts=HOSTS), made)
    assert sorted(sorted(one.rank for one in group) for group in groups) == [[4, 5, 6, 7], [15]]


def test_without_stragglers_the_rest_of_the_work_is_left() -> None:
    work = noise(50, 4)
    work[10:20, 2] += 50
    roles = alike(4)
    comparison = compare(matrix(work), roles, find_steps(calls(work)))
    found = find_stragglers(comparison, roles, {})
    left = np.isnan(without(comparison, found).values)
    assert left[10:20, 2].all()
    assert left.sum() == 10


def test_spread_is_that_of_healthy_ranks_though_one_is_slow_and_replicas_share_batches() -> None:
    work = noise(400, 8)
    work[:, 3] += 100
    assert noise_of(work) == pytest.approx(1.0, abs=0.1)
    batches = np.repeat(np.random.default_rng(0).normal(size=(400, 2)), 4, axis=1)
    assert noise_of(100 + batches) == pytest.approx(1.0, abs=0.15)


def test_a_finding_says_who_since_when_how_often_and_at_what_cost() -> None:
    work = noise(100, 8)
    work[30:, 5] += 25
    made = evidence(calls(work), hosts=HOSTS)
    steps, roles = find_steps(made.calls), alike(8)
    comparison = compare(matrix(work), roles, steps)
    (group,) = incidents_of(find_stragglers(comparison, roles, HOSTS), made)
    said = finding(group, frozenset(one.rank for one in group), comparison, made, steps)
    assert [one.rank for one in said.culprits] == [5]
    assert said.onset_step == 30
    assert said.onset_ns == made.calls.enter_ns[30 * 8 + 5]
    assert said.affected is not None
    assert said.affected.steps == tuple(range(30, 100))
    assert said.slowdown == pytest.approx(1.25, abs=0.03)
    assert said.lost_ns == pytest.approx(70 * 25 * MS, rel=0.1)
    assert said.waiting_ranks == (0, 1, 2, 3, 4, 6, 7)
    assert "rank 5" in said.summary[0].lower()


def test_a_finding_of_a_host_names_the_host_and_what_recurs_in_time_its_seconds() -> None:
    steps_hit = [7, 15, 24, 32, 41, 50, 58, 67, 75, 84, 93]
    work = noise(100, 16)
    work[steps_hit, 4:8] += 30
    made = evidence(calls(work), hosts=HOSTS)
    steps, roles = find_steps(made.calls), alike(16)
    comparison = compare(matrix(work), roles, steps)
    (group,) = incidents_of(find_stragglers(comparison, roles, HOSTS), made)
    said = finding(group, frozenset(one.rank for one in group), comparison, made, steps)
    assert [(one.kind, one.id, one.ranks) for one in said.groups] == [("host", "host-1", (4, 5, 6, 7))]
    assert said.period_steps is None
    assert said.period_seconds == pytest.approx(8.6 * 0.103 + 0.03, rel=0.1)


def test_two_that_share_neither_host_nor_period_are_two_incidents_and_both_are_sure() -> None:
    work = noise(150, 16)
    work[[3, 11, 40, 41, 77, 90, 101, 120, 133], 2] += 60
    work[[6, 20, 33, 59, 70, 84, 111, 140], 9] += 60
    made = evidence(calls(work), hosts=HOSTS)
    steps, roles = find_steps(made.calls), alike(16)
    comparison = compare(matrix(work), roles, steps)
    groups = incidents_of(find_stragglers(comparison, roles, HOSTS), made)
    said = [finding(group, frozenset({2, 9}), comparison, made, steps) for group in groups]
    assert sorted(one.culprits[0].rank for one in said) == [2, 9]
    assert all(len(one.culprits) == 1 and one.confidence > 0.7 for one in said)
