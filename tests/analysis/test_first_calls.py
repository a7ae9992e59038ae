"""In a pipeline a host that is late shows in the first communication of a step, before much was computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingero_mcp.analysis.comparison import compare
from ingero_mcp.analysis.evidence import Evidence, Sends
from ingero_mcp.analysis.first_calls import until_first_call
from ingero_mcp.analysis.late import who_is_late
from ingero_mcp.analysis.steps import find_steps
from ingero_mcp.store import open_store
from ingero_mcp.synth.scenario import generate
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import ExplainStall, explain_stall
from tests.analysis.slow_job import MS, alike, calls, evidence, matrix, noise


def with_sends(work_ms: np.ndarray, first_ms: np.ndarray) -> Evidence:
    """Every rank sends so long after its step began; the step ends as ever."""
    made = calls(work_ms, timed=True)
    begin = made.enter_ns - (work_ms * MS).astype(np.int64).reshape(-1)
    sent = replace(made, enter_ns=begin + (first_ms * MS).astype(np.int64).reshape(-1))
    size = len(made)
    sends = Sends(sent, np.ones(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
    return replace(evidence(made, "kernel_gpu"), sends=sends)


def test_it_is_the_time_from_the_end_of_a_step_to_the_first_send_of_the_next() -> None:
    first_ms = noise(40, 4) / 10
    job = with_sends(noise(40, 4), first_ms)
    found = until_first_call(job, find_steps(job.calls))
    assert found is not None
    assert np.isnan(found.values[0]).all()
    assert np.allclose(found.values[1:], first_ms[1:] * MS, atol=1_000)


def test_without_sends_or_with_recorded_computing_there_is_none() -> None:
    job = evidence(calls(noise(40, 4), timed=True), "kernel_gpu")
    assert until_first_call(job, find_steps(job.calls)) is None
    host = replace(with_sends(noise(40, 4), noise(40, 4) / 10), timing="host_api")
    assert until_first_call(host, find_steps(host.calls)) is None


@pytest.mark.parametrize(("family", "seed"), [("F9", 7), ("F9", 8), ("F1", 4)])
def test_a_small_stall_before_the_first_launch_is_found_from_kernels_alone(family: str, seed: int) -> None:
    case = generate(family, seed, 3.0, "kernel")
    with open_store(None) as store:
        for batch in case.batches():
            store.append(batch).result(timeout=20)
        said = explain_stall(Call(store, None), ExplainStall()).structured
    assert said["verdict"] == "straggler"
    assert [one["rank"] for one in said["culprits"]] == list(case.truth.culprits)


def late_in(first_ms: np.ndarray) -> list[int]:
    """Who is late, all ranks having worked as long."""
    job = with_sends(noise(80, 6), first_ms)
    steps, roles = find_steps(job.calls), alike(6)
    own = compare(matrix(noise(80, 6)), roles, steps)
    return [one.rank for late in who_is_late(job, steps, roles, own, own) for one in late.stragglers]


def test_ranks_whose_first_communication_is_always_later_are_not_late() -> None:
    first_ms = noise(80, 6) / 10
    first_ms[:, 4:] += 8
    assert late_in(first_ms) == []
    first_ms[5::12, 1] += 8
    assert late_in(first_ms) == [1]
