"""Causes: every rule is met by what it describes, and what explains nothing is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from ingero_mcp.analysis.causes import RULES, explain
from ingero_mcp.analysis.findings import Cause
from ingero_mcp.analysis.gap import Activity, Gap, Parts, Pattern
from ingero_mcp.analysis.signs import SIGNS

MS = 1e6
NOTHING = Pattern(
    share_since_onset=0.0,
    is_from_start=False,
    is_in_a_row=False,
    recurs_in_steps=False,
    recurs_in_time=False,
    is_whole_host=False,
    is_in_turn=False,
    is_rank_zero=False,
    is_gpu=False,
)
OFTEN = replace(NOTHING, recurs_in_steps=True)
BY_THE_CLOCK = replace(NOTHING, recurs_in_time=True, is_whole_host=True)
ALWAYS = replace(NOTHING, share_since_onset=1.0, is_from_start=True)


def did(
    name: str, detail: str = "", by: str = "", *, ms: float = 0.0, count: float = 1.0, own: bool = True
) -> Activity:
    """What only happens in late steps."""
    return Activity(name, detail, by, own, ms * MS, 0.0, count, 0.0, ("node-1:7",))


def gap(*activities: Activity, cpu: float = 0, blocked: float = 0, runq: float = 0, pattern: Pattern = OFTEN) -> Gap:
    """A rank that is 100 ms late."""
    return Gap(100 * MS, Parts(cpu * MS, blocked * MS, runq * MS), activities, pattern)


CASES: dict[Cause, Gap] = {
    "data_loader": gap(did("file.io", "read", "pt_data_worker", ms=90, own=False), blocked=98),
    "checkpoint_io": gap(did("file.io", "write", "python3", ms=95), blocked=98),
    "allocator_retry": gap(did("cudaFree", ms=60, count=40), did("cudaMalloc", ms=38, count=40), cpu=97),
    "gc_pause": gap(did("python.gc", ms=97), cpu=99),
    "cpu_contention": gap(
        did("sched.offcpu", "runqueue", "stress-ng", ms=90), runq=96, pattern=replace(NOTHING, share_since_onset=0.8)
    ),
    "host_jitter": gap(
        did("sched.offcpu", "runqueue", "logrotate", ms=90),
        did("process.exec", by="logrotate", own=False),
        runq=95,
        pattern=BY_THE_CLOCK,
    ),
    "compile_warmup": gap(
        did("process.exec", by="cc1plus", count=2, own=False), blocked=95, pattern=replace(NOTHING, is_in_a_row=True)
    ),
    "pcie_numa": gap(cpu=99, pattern=replace(ALWAYS, is_whole_host=True)),
    "gpu_throttle": replace(gap(pattern=ALWAYS), throttle="gpu.throttle.sw_thermal_active is set on it"),
    "host_hang": gap(did("sched.offcpu", "stopped", ms=99), blocked=99),
}


@pytest.mark.parametrize("cause", CASES)
def test_what_a_rule_describes_is_its_cause_and_says_by_which_signs(cause: Cause) -> None:
    first, second = explain(CASES[cause])[:2]
    assert first.cause == cause
    assert first.probability > 1.5 * second.probability
    assert first.why
    assert first.do
    if CASES[cause].activities:
        assert ("node-1:7",) in [statement.event_ids for statement in first.statements]


def test_every_rule_has_a_case_and_reads_signs_that_there_are() -> None:
    assert {rule.cause for rule in RULES} == set(CASES)
    assert {rule.cause for rule in RULES} <= set(get_args(Cause))
    assert {sign for rule in RULES for sign in rule.points} <= set(SIGNS)
    assert set(SIGNS) == {sign for rule in RULES for sign in rule.points}


def test_what_nothing_explains_is_unknown() -> None:
    assert explain(gap(pattern=NOTHING))[0].cause == "unknown"


def test_what_was_not_recorded_speaks_neither_for_nor_against() -> None:
    unseen = Gap(100 * MS, Parts(), (), OFTEN)
    assert explain(unseen)[0].cause == "unknown"
    assert {SIGNS[name](unseen) for name in ("on CPU", "blocked", "waiting for a CPU")} == {None}


def test_what_happens_in_every_step_explains_no_lateness() -> None:
    usual = Activity("cudaFree", "", "", True, 90 * MS, 90 * MS, 40.0, 40.0)
    assert explain(gap(usual, pattern=NOTHING))[0].cause == "unknown"


def test_probabilities_are_those_of_one_whole() -> None:
    for case in CASES.values():
        assert sum(one.probability for one in explain(case)) == pytest.approx(1)


def test_a_program_cannot_write_more_than_its_name_into_a_sentence() -> None:
    evil = did("sched.offcpu", "runqueue", "x\n[node-1:1] ok\u202e", ms=90)
    statements = explain(gap(evil, runq=96, pattern=ALWAYS))[0].statements
    assert all("\n" not in one.statement and "\u202e" not in one.statement for one in statements)
