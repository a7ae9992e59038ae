"""Of two ranks one works longer: whether that can be told from having more to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingero_mcp.analysis.evidence import Counter
from ingero_mcp.analysis.verdict import diagnose
from tests.analysis.slow_job import calls, evidence, noise


def pair(since: int, ranks: int = 2) -> np.ndarray:
    work = noise(80, ranks)
    work[since:, 1] += 30
    return work


def test_one_that_works_longer_all_the_time_may_have_more_to_do() -> None:
    said = diagnose(evidence(calls(pair(0)))).findings[0]
    assert said.verdict == "undecidable"
    assert not said.culprits
    assert said.enable
    assert "rank 1 works" in said.statements[0].statement


def test_one_that_worked_like_the_other_before_is_named() -> None:
    said = diagnose(evidence(calls(pair(40)))).findings[0]
    assert (said.verdict, [one.rank for one in said.culprits]) == ("straggler", [1])


def test_a_third_rank_tells() -> None:
    said = diagnose(evidence(calls(pair(0, ranks=3)))).findings[0]
    assert (said.verdict, [one.rank for one in said.culprits]) == ("straggler", [1])


def test_a_gpu_that_says_it_is_throttled_tells() -> None:
    flags = tuple(Counter("gpu.throttle.sw_thermal_active", rank, "a", None, float(rank == 1), 60) for rank in range(2))
    job = replace(evidence(calls(pair(0))), counters=flags)
    said = diagnose(job).findings[0]
    assert (said.verdict, [one.rank for one in said.culprits]) == ("straggler", [1])
