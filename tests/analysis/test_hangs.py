"""Whether a job hangs, and by which kind of evidence; who is at fault is in test_standstill."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ingero_mcp import semconv
from ingero_mcp.analysis.evidence import Sign
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.hangs import find_hangs
from tests.analysis.seen import MS, START_NS, dumped, entry, evidence, open_at, rounds, without


def sign(kind: str, rank: int | None, ms: float, **facts: Any) -> Sign:
    usual: dict[str, Any] = {"node_id": f"node-{rank}", "pid": None, "value": None, "detail": "", "event_id": f"n:{ms}"}
    return Sign(kind=kind, rank=rank, at_ns=START_NS + round(ms * MS), **(usual | facts))


def names(found: tuple[Finding, ...]) -> list[int]:
    return [culprit.rank for one in found for culprit in one.culprits]


@pytest.mark.parametrize(
    ("values", "hanging"), [({0: 0.0, 1: 0.0}, []), ({0: 1.0, 1: 1.0}, [0, 1]), ({0: 0.0, 1: 1.0, 2: 0.0}, [1])]
)
def test_a_monitor_names_those_it_flags(values: dict[int, float], hanging: list[int]) -> None:
    flags = tuple(sign(semconv.HANG_FLAG, rank, 0, value=value) for rank, value in values.items())
    found = find_hangs(evidence(signs=flags))
    assert names(found) == hanging
    assert all(one.cause == "unknown" for one in found)


def test_only_the_latest_flag_of_a_rank_counts_and_no_flag_that_is_no_number() -> None:
    flags = (sign(semconv.HANG_FLAG, 0, 0, value=1.0), sign(semconv.HANG_FLAG, 0, 10, value=0.0))
    assert find_hangs(evidence(signs=flags)) == ()
    for value in (float("nan"), float("inf"), None):
        assert find_hangs(evidence(signs=(sign(semconv.HANG_FLAG, 0, 0, value=value),))) == ()


def test_dumps_without_anything_open_are_no_hang() -> None:
    assert find_hangs(dumped([entry(rank, 5, "completed") for rank in range(4)], members=range(4))) == ()


def test_a_job_that_fell_silent_hangs_and_one_that_goes_on_does_not() -> None:
    seen = without(rounds(range(3), 40, took=None), 2, 39)
    assert names(find_hangs(evidence(seen, timing="host_api", quiet_ms=5000))) == [2]
    assert find_hangs(evidence(seen, timing="host_api", quiet_ms=50)) == ()


def test_a_job_that_ended_is_not_one_that_hangs() -> None:
    assert find_hangs(evidence(rounds(range(3), 40, took=None), timing="host_api", quiet_ms=60_000)) == ()
    assert find_hangs(evidence(rounds(range(3), 40), quiet_ms=60_000)) == ()


def test_a_record_that_was_lost_at_the_end_of_a_job_is_no_hang_if_the_processes_ended() -> None:
    seen = without(rounds(range(3), 40, took=None), 2, 39)
    exits = tuple(sign(semconv.PROCESS_EXIT, rank, 500) for rank in range(3))
    job = evidence(seen, timing="host_api", quiet_ms=60_000, signs=exits)
    assert find_hangs(job) == ()
    assert names(find_hangs(replace(job, signs=exits[:2]))) == [2]
    still_open = sign(semconv.CALL_OPEN, 0, 20_000)
    assert names(find_hangs(replace(job, signs=(*exits, still_open)))) == [2]


def test_calls_that_are_still_open_make_a_hang_before_long_silence_does() -> None:
    seen = without(rounds(range(3), 40, took=None), 1, 39)
    job = evidence(seen, timing="host_api", quiet_ms=0, signs=(sign(semconv.CALL_OPEN, 0, 10_400),))
    assert names(find_hangs(job)) == [1]
    earlier = replace(job, signs=(sign(semconv.CALL_OPEN, 0, 100),))
    assert find_hangs(earlier) == ()


def test_a_gpu_that_stopped_is_found_without_any_silence() -> None:
    seen = open_at(rounds(range(4), 30), (1, 28), (1, 29), (0, 29), (2, 29), (3, 29))
    (found,) = find_hangs(evidence(seen))
    assert (found.cause, names((found,))) == ("gpu_fault", [1])


def test_an_end_that_nobody_recorded_in_the_middle_of_a_job_is_no_hang() -> None:
    assert find_hangs(evidence(open_at(rounds(range(4), 30), (1, 12)))) == ()
    quiet = evidence(open_at(rounds(range(4), 30), (1, 12)), quiet_ms=60_000)
    assert find_hangs(quiet) == ()


def test_nothing_seen_is_nothing_found() -> None:
    assert find_hangs(evidence()) == ()
    assert find_hangs(evidence(timing="recorder")) == ()
    assert find_hangs(dumped([], members=[0, 1], empty=[0, 1])) == ()
