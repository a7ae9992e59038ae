"""GPU counters: the GPU that runs slower than its peers' is named, and an idle or uniform fleet is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingero_mcp.analysis.counters import slow_gpu
from ingero_mcp.analysis.evidence import Counter, Evidence, Place
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.incident import Incident
from ingero_mcp.analysis.steps import find_steps
from tests.analysis.seen import evidence, rounds

RANKS = 8


def clock(rank: int, mhz: float) -> Counter:
    return Counter("gpu.clock.sm_mhz", rank, "n", None, mhz, 60)


def throttle(rank: int, active: float, reason: str = "sw_thermal_active") -> Counter:
    return Counter(f"gpu.throttle.{reason}", rank, "n", None, active, 60)


def seen(*counters: Counter) -> Evidence:
    return evidence(rounds(range(RANKS), 20), timing="host_api", counters=counters)


def slow(made: Evidence, incident: Incident | None = None) -> Finding | None:
    return slow_gpu(made, find_steps(made.calls), incident)


def test_the_gpu_with_a_low_clock_is_named() -> None:
    found = slow(seen(*(clock(rank, 1200 if rank == 5 else 1755) for rank in range(RANKS))))
    assert found is not None
    assert [culprit.rank for culprit in found.culprits] == [5]
    assert found.verdict == "straggler"
    assert ("gpu_throttle", 0.6) in found.alternatives


def test_the_gpu_that_says_that_it_is_throttled_is_named() -> None:
    found = slow(seen(*(throttle(rank, float(rank == 2)) for rank in range(RANKS))))
    assert found is not None
    assert [culprit.rank for culprit in found.culprits] == [2]
    assert found.waiting_ranks == (0, 1, 3, 4, 5, 6, 7)


def test_a_counter_of_a_gpu_belongs_to_the_rank_on_it() -> None:
    made = seen(
        *(Counter("gpu.clock.sm_mhz", None, "n", f"GPU-{gpu}", 900 if gpu == 3 else 1755, 9) for gpu in range(8))
    )
    found = slow(replace(made, places={rank: Place("n", gpu_uuid=f"GPU-{rank}") for rank in range(RANKS)}))
    assert found is not None
    assert [culprit.rank for culprit in found.culprits] == [3]


def test_equal_clocks_are_no_finding() -> None:
    assert slow(seen(*(clock(rank, 1755 - rank) for rank in range(RANKS)))) is None


def test_all_gpus_throttled_are_no_outlier() -> None:
    assert slow(seen(*(throttle(rank, 1.0) for rank in range(RANKS)))) is None


def test_an_idle_gpu_is_not_throttled() -> None:
    assert slow(seen(*(throttle(rank, float(rank == 2), "gpu_idle") for rank in range(RANKS)))) is None


def test_without_counters_there_is_nothing_to_say() -> None:
    assert slow(seen()) is None


def test_the_steps_that_were_longer_are_what_it_cost() -> None:
    steps = np.arange(10, 20)
    found = slow(
        seen(*(throttle(rank, float(rank == 2)) for rank in range(RANKS))),
        Incident(0, steps, 3e6, 20.0, "stretch", None),
    )
    assert found is not None
    assert found.lost_ns == 3e7
    assert found.onset_step == 10
    assert found.affected is not None
    assert found.affected.steps == tuple(steps.tolist())
