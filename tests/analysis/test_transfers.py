"""The network: a slow link is named by the communicators that cross it, and nothing is said of a healthy one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.analysis.evidence import Communicator, Evidence, Place, Sends, Sign
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.steps import find_steps
from ingero_mcp.analysis.transfers import find_network, slow_steps, transfers
from tests.analysis.seen import MS, START_NS, Seen, calls, evidence

STEPS = 60
STEP_MS = 400.0
COMMS = {"ab" * 8: (0, 1), "cd" * 8: (2, 3), "ef" * 8: (4, 5), "01" * 8: (0, 2, 4), "23" * 8: (1, 3, 5)}
HOSTS = {0: "host-a", 1: "host-b", 2: "host-b", 3: "host-c", 4: "host-c", 5: "host-a"}
PAIRS = {"ab" * 8: "host-a - host-b", "cd" * 8: "host-b - host-c", "ef" * 8: "host-a - host-c"}
Factor = Callable[[int, str], float]


def usual(_step: int, _comm: str) -> float:
    return 1.0


def after(first: int, factor: float, comm: str) -> Factor:
    return lambda step, name: factor if step >= first and name == comm else 1.0


def job(
    factor: Factor = usual,
    *,
    seed: int = 0,
    noise: float = 0.03,
    late: Mapping[int, float] | None = None,
    comms: Mapping[str, tuple[int, ...]] | None = None,
    steps: int = STEPS,
    hidden: bool = False,
) -> Evidence:
    """In each step one communicator after the other reduces, for 20 ms; `late` ranks enter so many ms after the others.

    With `hidden` the steps are as long as ever, whatever the transfers take.
    """
    random = np.random.default_rng(seed)
    members: Mapping[str, tuple[int, ...]] = COMMS if comms is None else comms
    seen, now = [], 0.0
    for step in range(steps):
        for name, ranks in members.items():
            enter = {
                rank: now + random.uniform(0, 0.1 if hidden else 3) + (late or {}).get(rank, 0.0) for rank in ranks
            }
            took = 20 * float(np.exp(random.normal(0, noise))) * factor(step, name)
            end = max(enter.values()) + took
            seen += [Seen(rank, step, at, end - at, comm=name, step=step) for rank, at in enter.items()]
            now = end + 30
        now = (step + 1) * STEP_MS if hidden else now + 50
    everyone = sorted({rank for those in members.values() for rank in those})
    return evidence(seen, places={rank: Place(HOSTS.get(rank, "host-a")) for rank in everyone})


def network(seen: Evidence, late: tuple[int, ...] = ()) -> Finding | None:
    steps = find_steps(seen.calls)
    return find_network(seen, steps, np.isin(np.arange(len(steps)), late))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 0.05))
def test_a_healthy_network_is_not_blamed(seed: int, noise: float) -> None:
    assert network(job(seed=seed, noise=noise)) is None


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(sorted(PAIRS)), st.integers(10, 40), st.floats(1.25, 4.0), st.integers(0, 100))
def test_the_link_that_the_slow_communicator_crosses_is_named(comm: str, first: int, factor: float, seed: int) -> None:
    found = network(job(after(first, factor, comm), seed=seed))
    assert found is not None
    assert found.verdict == "network"
    assert (found.groups[0].kind, found.groups[0].id) == ("link", PAIRS[comm])
    assert found.groups[1].id == comm
    assert found.onset_step is not None
    assert abs(found.onset_step - first) <= 1
    assert not found.culprits


def test_a_rank_that_is_late_is_no_slow_network() -> None:
    assert network(job(late={3: 80.0})) is None


def test_a_link_that_comes_and_goes_is_found_in_the_steps_in_which_it_was_slow() -> None:
    flaps = [step for step in range(20, STEPS) if (step - 20) // 5 % 2 == 0]
    found = network(job(lambda step, comm: 1.6 if step in flaps and comm == "ab" * 8 else 1.0))
    assert found is not None
    assert found.affected is not None
    assert set(found.affected.steps) == set(flaps)


def test_a_link_that_was_always_slow_is_found_by_its_peers() -> None:
    found = network(job(after(0, 1.8, "cd" * 8)))
    assert found is not None
    assert found.groups[0].id == "host-b - host-c"
    assert found.affected is not None
    assert len(found.affected.steps) == STEPS


def test_of_two_alike_either_may_be_the_odd_one() -> None:
    two = {name: COMMS[name] for name in ("ab" * 8, "cd" * 8)}
    assert network(job(after(0, 1.8, "cd" * 8), comms=two)) is None


def test_one_communicator_of_three_hosts_does_not_tell_the_link() -> None:
    found = network(job(after(30, 1.5, "01" * 8), comms={"01" * 8: (0, 2, 4)}))
    assert found is not None
    assert [group.kind for group in found.groups] == ["communicator"]


def test_a_single_long_transfer_is_not_a_slow_link() -> None:
    assert network(job(lambda step, comm: 5.0 if step == 30 and comm == "ab" * 8 else 1.0)) is None


def test_collectives_of_which_a_member_was_not_seen_say_nothing() -> None:
    seen = job(after(30, 2.0, "ab" * 8))
    larger = {name: Communicator(name, len(one.members) + 1, one.members) for name, one in seen.communicators.items()}
    assert network(replace(seen, communicators=larger)) is None


def test_sends_over_a_slow_link_are_seen() -> None:
    healthy = job(comms={name: ranks for name, ranks in COMMS.items() if name != "ab" * 8})
    random = np.random.default_rng(1)
    pair = []
    for step in range(STEPS):
        took = 4 * float(np.exp(random.normal(0, 0.03))) * (2.0 if step >= 30 else 1.0)
        start = step * STEP_MS + 250
        pair += [Seen(0, step, start, took, "ncclSend", "99" * 8 + " 0 1", step=step)]
        pair += [Seen(1, step, start - 6, took + 6, "ncclRecv", "99" * 8 + " 0 1", step=step)]
    sends = calls(pair)
    found = network(replace(healthy, sends=Sends(sends, 1 - sends.rank, 1 - sends.rank)))
    assert found is not None
    assert found.groups[0].id == "host-a - host-b"


def test_a_slow_link_that_costs_nothing_holds_nobody_up() -> None:
    assert network(job(after(30, 1.5, "ab" * 8), hidden=True, noise=0.003)) is None


def test_few_steps_say_nothing() -> None:
    assert network(job(after(3, 3.0, "ab" * 8), steps=6)) is None


def on_the_host(longer_ms: float = 0.0, first: int = 30, retransmits: Mapping[str, int] | None = None) -> Evidence:
    """The same job as its hosts see it: steps are longer from some step on, and TCP repeats itself now and then."""
    random = np.random.default_rng(3)
    start = 0.0
    seen: list[Seen] = []
    signs: list[Sign] = []
    for step in range(STEPS):
        took = 250 + random.normal(0, 3) + (longer_ms if step >= first else 0.0)
        seen += [Seen(rank, step, start + random.uniform(0, 1), took, step=step) for rank in range(6)]
        for host in sorted(set(HOSTS.values())):
            for _ in range(random.poisson((retransmits or {}).get(host, 0) if step >= first else 0.02)):
                at = START_NS + round((start + random.uniform(0, took)) * MS)
                signs.append(Sign("tcp.retransmit", None, host, None, at, 1.0, "", f"{host}:{len(signs)}"))
        start += took + 20
    made = evidence(seen, timing="host_api", signs=tuple(signs))
    ended = replace(made.calls, done_ns=calls(seen).done_ns)
    return replace(made, calls=ended, places={rank: Place(host) for rank, host in HOSTS.items()})


def test_from_the_hosts_side_a_slow_network_cannot_be_told_from_a_slow_gpu() -> None:
    found = network(on_the_host(longer_ms=40))
    assert found is not None
    assert found.verdict == "undecidable"
    assert {cause for cause, _ in found.alternatives} == {"network", "gpu_throttle"}
    assert found.onset_step == 30


def test_retransmits_at_both_ends_tell_the_network() -> None:
    found = network(on_the_host(longer_ms=12, retransmits={"host-a": 2, "host-c": 2}))
    assert found is not None
    assert found.verdict == "network"
    assert (found.groups[0].kind, found.groups[0].id) == ("link", "host-a - host-c")
    assert found.statements[0].event_ids


@pytest.mark.parametrize("hosts", [{}, {"host-a": 3}])
def test_retransmits_of_one_host_do_not(hosts: dict[str, int]) -> None:
    assert network(on_the_host(retransmits=hosts)) is None


def test_retransmits_that_cost_nothing_do_not() -> None:
    assert network(on_the_host(longer_ms=-4, retransmits={"host-a": 2, "host-c": 2})) is None


def test_steps_in_which_a_rank_was_late_do_not_count_on_the_host() -> None:
    assert network(on_the_host(longer_ms=40), late=tuple(range(30, STEPS))) is None


def test_slow_steps_of_the_host_are_an_incident() -> None:
    seen = on_the_host(longer_ms=30)
    steps = find_steps(seen.calls)
    times = transfers(seen.calls, steps)
    found = slow_steps(steps, times, np.ones(len(times), dtype=np.bool_))
    assert found is not None
    assert found.steps.tolist() == list(range(30, STEPS))
    assert found.excess == pytest.approx(30 * MS, rel=0.2)
    assert slow_steps(steps, times, np.zeros(len(times), dtype=np.bool_)) is None
