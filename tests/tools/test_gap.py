"""Why: what a culprit did between its collectives is read from the store, and leads to the planted cause."""

from __future__ import annotations

from typing import Any

import pytest

from ingero_mcp.store import open_store
from ingero_mcp.synth.scenario import Truth, View, generate
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import ExplainStall, explain_stall

ON_HOSTS = ("F1", "F2", "F3", "F4", "F8", "F9", "F14", "F15")


def asked(family: str, seed: int, view: View = "probe") -> tuple[Truth, dict[str, Any]]:
    case = generate(family, seed, 10.0, view)
    with open_store(None) as store:
        for stored in [store.append(batch) for batch in case.batches()]:
            stored.result()
        return case.truth, dict(explain_stall(Call(store, None), ExplainStall()).structured)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("family", ON_HOSTS)
def test_what_a_host_did_is_the_cause_where_its_probe_saw_it(family: str, seed: int) -> None:
    truth, said = asked(family, seed)
    assert said["cause"] == truth.cause, said["evidence"]
    assert truth.cause in said["summary"]
    assert said["confidence"] > max((other["confidence"] for other in said["alternatives"]), default=0)


@pytest.mark.parametrize("view", ["kernel", "optrace"])
@pytest.mark.parametrize("family", ["F1", "F2", "F4", "F14"])
def test_what_a_host_did_is_not_guessed_from_the_times_of_gpus(family: str, view: View) -> None:
    truth, said = asked(family, 1, view)
    assert said["verdict"] == "straggler"
    assert said["cause"] in ("unknown", truth.cause)


def test_computing_that_is_longer_from_an_onset_on_is_a_slow_gpu() -> None:
    _, said = asked("F5", 1, "optrace")
    assert (said["verdict"], said["cause"]) == ("straggler", "gpu_throttle")


def test_the_events_that_show_the_cause_are_in_the_store() -> None:
    case = generate("F4", 1, 10.0, "probe")
    with open_store(None) as store:
        for stored in [store.append(batch) for batch in case.batches()]:
            stored.result()
        call = Call(store, None)
        said = explain_stall(call, ExplainStall()).structured
        ids = [event_id for fact in said["evidence"] for event_id in fact["event_ids"]]
        listed = ", ".join(f"'{event_id}'" for event_id in ids)
        names = call.read(f"SELECT DISTINCT metric_name FROM events WHERE id IN ({listed})", 20).rows
    assert {"cudaFree", "cudaMalloc"} & {str(name) for (name,) in names}
