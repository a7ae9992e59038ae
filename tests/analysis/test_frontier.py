"""How far each rank has come, by dumps, by GPU timing and by what was seen live."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from ingero_mcp.analysis.evidence import Communicator, Evidence, Sends
from ingero_mcp.analysis.frontier import live_frontier, recorded_frontier, timed_frontier
from ingero_mcp.analysis.hangs import find_hangs
from tests.analysis.seen import COMM, Seen, calls, dumped, entry, evidence, open_at, rounds, without


def test_a_recorder_tells_the_last_entered_the_last_ended_and_the_first_open_collective() -> None:
    found = recorded_frontier(dumped([entry(0, 4, "completed"), entry(0, 6), entry(0, 5)], members=[0, 1]))
    stand = found.stands[COMM][0]
    assert (stand.entered, stand.ended, stand.open, stand.next) == (6, 4, 5, 5)
    assert stand.event_id == entry(0, 5).event_id
    assert stand.open_ns == entry(0, 5).enter_ns
    assert found.absent == {COMM: (1,)}
    assert (found.waiting, found.seen, found.silent) == (frozenset({0}), frozenset({0}), frozenset())


def test_what_comes_before_a_completed_collective_is_not_open_whatever_its_state() -> None:
    found = recorded_frontier(dumped([entry(0, 4), entry(0, 5, "completed"), entry(0, 6)], members=[0]))
    assert found.stands[COMM][0].open == 6


def test_counters_tell_where_a_rank_without_entries_is() -> None:
    found = recorded_frontier(dumped([entry(0, 6), entry(1, 6)], members=[0, 1, 2], empty=[2], progress={2: (5, 5)}))
    assert found.silent == {2}
    assert (
        recorded_frontier(dumped([entry(0, 6), entry(1, 6)], members=[0, 1, 2], empty=[2], progress={2: (6, 5)})).silent
        == frozenset()
    )


def test_an_empty_recorder_without_counters_is_neither_waiting_nor_silent() -> None:
    found = recorded_frontier(dumped([entry(0, 6)], members=[0, 1], empty=[1]))
    assert (found.waiting, found.silent, dict(found.absent)) == (frozenset({0}), frozenset(), {})


def test_a_rank_behind_in_one_communicator_that_waits_in_another_is_not_silent() -> None:
    seen = dumped([entry(0, 6), entry(1, 5, "completed"), entry(1, 3, comm_id="other")], members=[0, 1])
    assert recorded_frontier(seen).silent == frozenset()


def test_gpu_timing_shows_open_collectives_at_the_end_of_a_rank_only() -> None:
    seen = open_at(rounds([0, 1], 6), (0, 2), (1, 5))
    found = timed_frontier(evidence(seen))
    assert found.stands[COMM][0].open is None
    assert found.stands[COMM][1].open == 5
    assert found.waiting == {1}


def test_a_rank_that_did_not_enter_what_others_wait_in_is_silent() -> None:
    seen = open_at(without(rounds([0, 1, 2], 6), 2, 5), (0, 5), (1, 5))
    found = timed_frontier(evidence(seen))
    assert (found.waiting, found.silent) == (frozenset({0, 1}), frozenset({2}))


def test_live_a_rank_waits_until_all_members_have_entered() -> None:
    found = live_frontier(evidence(without(rounds([0, 1, 2], 6, took=None), 2, 5), timing="host_api"))
    assert (found.waiting, found.silent) == (frozenset({0, 1}), frozenset({2}))
    assert live_frontier(evidence(rounds([0, 1, 2], 6, took=None), timing="host_api")).waiting == frozenset()


def test_ranks_that_were_never_watched_are_not_waited_for() -> None:
    half = evidence(
        rounds([0, 1], 30, took=None), timing="host_api", communicators={COMM: Communicator(COMM, 4, (0, 1))}
    )
    assert live_frontier(half).waiting == frozenset()


def test_the_first_collective_of_a_communicator_waits_for_members_that_nobody_saw() -> None:
    first = evidence(
        rounds([0, 1], 1, took=None), timing="host_api", communicators={COMM: Communicator(COMM, 4, (0, 1))}
    )
    assert live_frontier(first).waiting == {0, 1}


def test_a_lost_record_is_not_a_missing_entry_if_the_rank_went_on() -> None:
    seen = [one for one in rounds([0, 1, 2], 6, took=None) if (one.rank, one.seq) != (1, 4)]
    assert live_frontier(evidence(seen, timing="host_api")).waiting == frozenset()


def test_only_the_latest_life_of_a_communicator_counts() -> None:
    before = rounds([0, 1, 2], 50, took=None)
    after = [replace(one, epoch=1, ms=one.ms + 1000) for one in without(rounds([0, 1, 2], 5, took=None), 2, 4)]
    found = live_frontier(evidence([*before, *after], timing="host_api"))
    assert (found.waiting, found.silent) == (frozenset({0, 1}), frozenset({2}))
    assert found.stands[COMM][2].entered == 3


def sends(*seen: Seen, peers: list[int]) -> Sends:
    made = calls(seen, kernel=False)
    return Sends(made, np.array(peers), np.array([one.op == "ncclSend" for one in seen]).astype(np.int64))


def test_a_receive_that_nobody_sends_to_waits_for_its_peer() -> None:
    receive = Seen(0, 0, 900.0, None, "ncclRecv", f"{COMM} 1 0")
    seen = evidence(rounds([0, 1], 6, took=None), timing="host_api", sends=sends(receive, peers=[1]))
    assert (live_frontier(seen).waiting, live_frontier(seen).silent) == (frozenset({0}), frozenset({1}))
    unknown = replace(seen, sends=sends(receive, peers=[-1]))
    assert live_frontier(unknown).waiting == frozenset()


@pytest.mark.parametrize("frontier", [live_frontier, timed_frontier, recorded_frontier])
def test_no_calls_are_no_frontier(frontier: object) -> None:
    found = frontier(evidence())  # type: ignore[operator]
    assert (dict(found.stands), found.waiting, found.silent, found.seen) == ({}, frozenset(), frozenset(), frozenset())


def large(ranks: int, comms: int, *, is_open: bool) -> Evidence:
    seen = [
        Seen(rank, seq, seq * 10.0, None if is_open and seq == 3 else 1.0, comm=f"{comm:016x}")
        for comm in range(comms)
        for seq in range(4)
        for rank in range(ranks)
        if not (is_open and rank == 7 and seq == 3)
    ]
    return evidence(seen)


def test_many_ranks_and_communicators_take_seconds_at_most() -> None:
    seen = large(256, 32, is_open=True)
    began = time.perf_counter()
    (found,) = find_hangs(seen)
    quiet = replace(seen, timing="host_api", newest_ns=seen.newest_ns + 10**12)
    (same,) = find_hangs(quiet)
    assert [one.rank for one in found.culprits] == [one.rank for one in same.culprits] == [7]
    assert time.perf_counter() - began < 5


def test_a_hundred_thousand_entries_take_seconds_at_most() -> None:
    entries = [
        entry(rank, seq, "completed" if seq < 400 else "scheduled", comm_id=f"{comm:016x}")
        for rank in range(64)
        for comm in range(4)
        for seq in range(401)
    ]
    seen = dumped(entries, members=list(range(64)))
    began = time.perf_counter()
    assert recorded_frontier(seen).waiting == frozenset(range(64))
    find_hangs(seen)
    assert time.perf_counter() - began < 5


def test_a_member_that_entered_other_things_but_never_this_is_silent() -> None:
    elsewhere = entry(2, 30, "completed", comm_id="other")
    found = recorded_frontier(dumped([entry(0, 6), entry(1, 6), elsewhere], members=[0, 1, 2]))
    assert found.silent == {2}
