"""Losses become gaps with a time and a reason; calls that go on are told of every ten seconds."""

from __future__ import annotations

from ingero_probes.attach import LOSSES
from ingero_probes.decode import Call
from ingero_probes.losses import Losses
from ingero_probes.open_calls import OPEN_NS, OpenCalls
from tests.probes.records import call


def counts(**changed: int) -> dict[str, int]:
    return dict.fromkeys(LOSSES, 0) | changed


def test_what_was_lost_since_the_last_time_is_one_gap() -> None:
    losses = Losses(now_ns=100)
    assert losses.gap(counts(exits_without_entry=7), 0, 200) is None
    first = losses.gap(counts(ring_full=3), 2, 300)
    second = losses.gap(counts(ring_full=4), 2, 400)
    assert first is not None and second is not None
    assert dict(first.attributes) == {
        "probe.lost_events": 5,
        "probe.gap.start_ns": 200,
        "probe.gap.end_ns": 300,
        "probe.lost.ring_full": 3,
        "probe.lost.not_sent": 2,
    }
    assert (second.attributes["probe.lost_events"], second.attributes["probe.gap.start_ns"]) == (1, 300)
    assert losses.total == 6


def test_a_call_in_progress_is_told_of_when_it_is_long_and_then_again() -> None:
    open_calls, running = OpenCalls(), call("cudaDeviceSynchronize", at=5)
    assert isinstance(running, Call)
    told = [
        bool(list(open_calls.due([running], 5 + now))) for now in (0, OPEN_NS - 1, OPEN_NS, OPEN_NS + 1, 2 * OPEN_NS)
    ]
    assert told == [False, False, True, False, True]
