"""Families beside F1 to F18: unseen ones, two incidents in one run, and what cannot be told."""

from __future__ import annotations

import numpy as np
import pytest

from ingero_mcp import semconv
from ingero_mcp.synth.scenario import DOUBLES, EVERY, FAMILIES, UNSEEN, UNTOLD, VIEWS, generate
from ingero_mcp.synth.scenario.generate import run_incident

from .events import rows

SEEDS = range(4)
BESIDE = {**UNSEEN, **DOUBLES, **UNTOLD}


def test_every_family_has_a_name_of_its_own() -> None:
    assert len(EVERY) == len(FAMILIES) + len(BESIDE)


@pytest.mark.parametrize("family", sorted(BESIDE))
def test_the_truth_is_consistent(family: str) -> None:
    for view in EVERY[family].views:
        truth = generate(family, 5, 5.0, view).truth
        assert truth.verdict in truth.accepted
        assert truth == generate(family, 5, 5.0, view).truth
        assert bool(truth.faults) == (family in DOUBLES)
        assert not truth.is_clean
        if family in UNTOLD:
            assert truth.is_hidden
            assert set(truth.accepted) == {"undecidable", "healthy"}


@pytest.mark.parametrize("family", sorted(DOUBLES))
def test_two_incidents_hit_others_and_the_costlier_comes_first(family: str) -> None:
    for seed in SEEDS:
        truth = generate(family, seed, 10.0).truth
        one, other = truth.faults
        assert not set(one.culprits) & set(other.culprits)
        assert one.cause != other.cause
        assert one.lost_ns >= other.lost_ns >= 0
        assert set(truth.culprits) == {*one.culprits, *other.culprits}


def test_both_of_two_incidents_show_the_events_that_betray_them() -> None:
    for seed in SEEDS:
        names = {(row["metric_name"], "write" in str(row["attrs_json"])) for row in rows(generate("M2", seed, 10.0))}
        assert ("file.io", True) in names
        assert ("cudaMalloc", False) in names


def test_one_after_the_other_share_no_step() -> None:
    for seed in SEEDS:
        early, late = run_incident("M3", seed, 5.0).draft.parts
        assert early.steps.max() < late.steps.min()
        for part in (early, late):
            hit = np.flatnonzero(part.plan.extra_ns.any(axis=1))
            assert set(hit.tolist()) == set(part.steps.tolist())


def test_a_quota_stops_one_rank_and_nobody_takes_its_cpu() -> None:
    case = generate("U1", 1, 10.0)
    takers = [
        row for row in rows(case) if row["metric_name"] == semconv.SCHED_OFFCPU and "runqueue" in row["attrs_json"]
    ]
    assert takers
    assert all("swapper" in row["attrs_json"] for row in takers)


def test_pages_come_back_from_the_disk_of_one_host() -> None:
    truth = generate("U2", 1, 10.0).truth
    assert truth.group is not None
    assert truth.culprits == truth.group.ranks
    read = [
        row for row in rows(generate("U2", 1, 10.0)) if row["metric_name"] == "block.io" and "dm-1" in row["attrs_json"]
    ]
    assert read
    assert {row["node_id"] for row in read} == {truth.group.id}


@pytest.mark.parametrize("view", VIEWS)
def test_one_recorded_rank_is_all_there_is(view: str) -> None:
    assert {row["rank"] for row in rows(generate("N1", 2, 5.0, view))} != set()  # type: ignore[arg-type]
    assert len({row["rank"] for row in rows(generate("N1", 2, 5.0, view))}) == 1  # type: ignore[arg-type]


def test_enqueued_calls_say_nothing_of_own_time() -> None:
    found = rows(generate("N3", 2))
    assert {row["source"] for row in found} == {"nccl"}
    assert all(row[name] is None for row in found for name in ("cpu_ns", "blocked_ns", "runq_ns", "sync_ns"))


def test_an_uneven_run_is_compared_with_the_same_work_dealt_out_evenly() -> None:
    incident = run_incident("F13", 3, 10.0)
    even, plan = incident.draft.even, incident.draft.plan
    assert even is not None
    assert even.gpu_factor.sum() == pytest.approx(plan.gpu_factor.sum())
    truth = generate("F13", 3, 10.0).truth
    assert 0 < truth.lost_ns < incident.run.length_ns - incident.usual.length_ns
