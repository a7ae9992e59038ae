"""Generated jobs with one fault each, through store and evidence: who is named, and nobody where nobody is at fault."""

from __future__ import annotations

import pytest

from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.verdict import diagnose
from ingero_mcp.store import open_store
from ingero_mcp.synth.scenario import Truth, View, generate
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.evidence import read_evidence
from ingero_mcp.tools.jobs import jobs


def first_finding(family: str, seed: int, severity: float, view: View) -> tuple[Truth, Finding]:
    """What was planted, and the first finding on the job with most events."""
    case = generate(family, seed, severity, view)
    with open_store(None) as store:
        for one in case.batches():
            store.append(one).result()
        call = Call(store, None)
        window = call.window(None)
        assert window is not None
        (job, *_) = jobs(call, window)
        return case.truth, diagnose(read_evidence(call, job, window)).findings[0]


@pytest.mark.parametrize("view", ["probe", "kernel", "optrace"])
@pytest.mark.parametrize(("family", "seed"), [("F1", 2), ("F4", 4), ("F9", 9), ("F14", 1)])
def test_the_rank_with_a_fault_is_named_alone_with_its_period(family: str, seed: int, view: View) -> None:
    truth, found = first_finding(family, seed, 10.0, view)
    assert (found.verdict, tuple(one.rank for one in found.culprits)) == ("straggler", truth.culprits)
    assert found.period_steps == truth.period_steps


@pytest.mark.parametrize(("seed", "view"), [(0, "kernel"), (1, "optrace")])
def test_a_slow_gpu_is_named(seed: int, view: View) -> None:
    truth, found = first_finding("F5", seed, 5.0, view)
    assert (found.verdict, tuple(one.rank for one in found.culprits)) == ("straggler", truth.culprits)


@pytest.mark.parametrize(("family", "seed"), [("F8", 3), ("F15", 1)])
def test_a_slow_host_is_named_with_all_of_its_ranks(family: str, seed: int) -> None:
    truth, found = first_finding(family, seed, 10.0, "probe")
    assert truth.group is not None
    assert [(one.kind, one.id, one.ranks) for one in found.groups] == [("host", truth.group.id, truth.group.ranks)]
    assert {one.rank for one in found.culprits} == set(truth.culprits)


@pytest.mark.parametrize(("family", "cause"), [("F12", "sequence_imbalance"), ("F13", "stage_imbalance")])
@pytest.mark.parametrize("view", ["kernel", "optrace"])
def test_uneven_work_blames_nobody(family: str, cause: str, view: View) -> None:
    _, found = first_finding(family, 1, 10.0, view)
    assert (found.verdict, found.cause, found.culprits) == ("imbalance", cause, ())


@pytest.mark.parametrize("view", ["probe", "kernel", "optrace"])
@pytest.mark.parametrize(("family", "seed"), [("F17", 3), ("F18", 10), ("F18", 13), ("F18", 17)])
def test_wrong_clocks_and_hiccups_blame_nobody(family: str, seed: int, view: View) -> None:
    _, found = first_finding(family, seed, 5.0, view)
    assert found.culprits == ()
    assert found.verdict not in ("straggler", "imbalance")
