"""Who is waited for: waiting is never blamed, absence has its price, a tie or an empty recorder names nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp import semconv
from ingero_mcp.analysis.evidence import Communicator, Entry, Evidence, Gap, Place, Sign
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.hangs import find_hangs
from tests.analysis.seen import COMM, MS, START_NS, Seen, dumped, entry, evidence, open_at, rounds, without


def ranks(one: Finding) -> list[int]:
    return [culprit.rank for culprit in one.culprits]


def said(one: Finding) -> str:
    return " ".join((*one.summary, *(statement.statement for statement in one.statements), *one.enable))


def only(seen: Evidence) -> Finding:
    (found,) = find_hangs(seen)
    return found


def test_those_that_are_ahead_wait_however_few_they_are() -> None:
    entries = [entry(rank, 640, "completed") for rank in range(8)] + [entry(4, 641), entry(5, 641)]
    found = only(dumped(entries, members=range(8)))
    assert ranks(found) == [0, 1, 2, 3, 6, 7]
    assert found.waiting_ranks == (4, 5)
    assert "which of these" in said(found) and "cannot be told from counts" in said(found)
    assert found.confidence <= 0.5


def test_the_only_member_without_a_dump_is_the_likely_culprit_at_a_lower_confidence() -> None:
    absent = only(dumped([entry(rank, 9) for rank in range(3)], members=range(4)))
    seen = only(dumped([*(entry(rank, 9) for rank in range(3)), entry(3, 8, "completed")], members=range(4)))
    assert ranks(absent) == ranks(seen) == [3]
    assert absent.confidence < seen.confidence
    assert "early_exit" in {cause for cause, _ in absent.alternatives}
    assert absent.enable == ("the dumps of rank 3",)
    assert "4 members 3 were seen" in said(absent)


@pytest.mark.parametrize("present", [0, 2])
def test_one_dump_of_four_decides_nothing_and_says_what_to_fetch(present: int) -> None:
    found = only(dumped([entry(present, 9)], members=range(4)))
    others = ", ".join(str(rank) for rank in range(4) if rank != present)
    assert (found.verdict, ranks(found)) == ("undecidable", [])
    assert found.waiting_ranks == (present,)
    assert found.enable[0].startswith("the dumps of ranks")
    assert others in found.enable[0] or "1-3" in found.enable[0]


def test_a_small_group_whose_other_half_is_absent_does_not_hide_what_the_rest_shows() -> None:
    """Rank 1's only partner is gone, but of the job nearly all was seen."""
    entries = [*(entry(rank, 9) for rank in range(7)), entry(1, 8), entry(1, 5, comm_id="pair")]
    seen = dumped(entries, members=range(8))
    pair = {"pair": Communicator("pair", 2, (1, 7))}
    found = only(replace(seen, communicators={**seen.communicators, **pair}))
    assert (found.cause, ranks(found)) == ("gpu_fault", [1])
    assert "nothing was seen of rank 7" in said(found)
    assert found.enable == ("the dumps of rank 7",)
    assert found.confidence <= 0.7


def test_an_empty_recorder_is_said_to_be_and_nobody_is_blamed_for_it_alone() -> None:
    found = only(dumped([entry(rank, 9) for rank in (0, 1, 3)], members=range(4), empty=[2]))
    assert ranks(found) == []
    assert "the recorder of rank 2 is empty: it says nothing" in said(found)
    assert "ranks 0-3 have all entered" not in said(found)


def test_an_empty_recorder_whose_counters_say_that_it_entered_clears_its_rank() -> None:
    seen = dumped([entry(rank, 9) for rank in (0, 1, 3)], members=range(4), empty=[2], progress={2: (9, 8)})
    found = only(seen)
    assert ranks(found) == []
    assert "known from counters only" in said(found)


def test_an_empty_recorder_whose_counters_are_behind_is_that_of_a_silent_rank() -> None:
    seen = dumped([entry(rank, 9) for rank in (0, 1, 3)], members=range(4), empty=[2], progress={2: (8, 8)})
    found = only(seen)
    assert (found.cause, ranks(found)) == ("host_hang", [2])
    assert found.onset_ns == entry(0, 9).enter_ns


def test_a_gpu_that_stopped_and_a_host_that_stopped_are_two_findings() -> None:
    entries = [*(entry(rank, 9) for rank in range(6)), entry(1, 8), entry(6, 7, "completed")]
    gpu, host = find_hangs(dumped(entries, members=range(7)))
    assert (gpu.cause, ranks(gpu)) == ("gpu_fault", [1])
    assert (host.cause, ranks(host)) == ("host_hang", [6])
    assert gpu.onset_ns == entry(1, 8).enter_ns


def test_a_broadcast_may_end_on_its_root_before_others_begin() -> None:
    entries = [entry(0, 9), *(entry(rank, 8, op="ncclBroadcast") for rank in (1, 2)), entry(1, 9), entry(2, 9)]
    found = only(dumped([entry(0, 8, "completed", op="ncclBroadcast"), *entries], members=range(3)))
    assert ranks(found) == []


def test_everybody_inside_names_nobody_and_says_what_would_tell() -> None:
    found = only(dumped([entry(rank, 9) for rank in range(4)], members=range(4)))
    assert ranks(found) == []
    assert found.cause == "unknown"
    assert found.enable


def test_waiting_in_a_receive_is_not_said_to_be_a_collective() -> None:
    seen = dumped([entry(rank, 9, "completed") for rank in range(3)], members=range(3))
    dumps = tuple(replace(dump, open=int(dump.rank == 0)) for dump in seen.dumps)
    found = only(replace(seen, dumps=dumps))
    assert "have all entered" not in said(found)
    assert found.waiting_ranks == (0,)


def sign(kind: str, rank: int | None, ms: float, **facts: Any) -> Sign:
    usual: dict[str, Any] = {"node_id": f"node-{rank}", "pid": None, "value": None, "detail": "", "event_id": "n:1"}
    return Sign(kind=kind, rank=rank, at_ns=START_NS + round(ms * MS), **(usual | facts))


SILENT = without(rounds(range(3), 40, took=None), 1, 39)


def test_a_process_that_ended_left_early() -> None:
    job = evidence(SILENT, timing="host_api", quiet_ms=9000, signs=(sign(semconv.PROCESS_EXIT, 1, 400),))
    found = only(job)
    assert (found.cause, ranks(found)) == ("early_exit", [1])
    assert "the process of rank 1 ended" in said(found)


def test_a_process_that_ended_in_an_earlier_life_says_nothing() -> None:
    long_ago = (sign(semconv.PROCESS_EXIT, 1, -3_600_000),)
    assert only(evidence(SILENT, timing="host_api", quiet_ms=9000, signs=long_ago)).cause == "host_hang"
    two = without(without(rounds(range(4), 40, took=None), 1, 39), 2, 39)
    exits = (sign(semconv.PROCESS_EXIT, 2, -3_600_000),)
    assert ranks(only(evidence(two, timing="host_api", quiet_ms=9000, signs=exits))) == [1, 2]


def test_a_restart_in_the_window_does_not_hide_the_hang_after_it() -> None:
    exits = tuple(sign(semconv.PROCESS_EXIT, rank, -3_600_000) for rank in range(3))
    assert ranks(only(evidence(SILENT, timing="host_api", quiet_ms=9000, signs=exits))) == [1]


def test_calls_that_are_open_in_steps_of_many_seconds_are_no_hang() -> None:
    slow = rounds(range(3), 20, every_ms=15_000, took=None)
    opened = tuple(
        sign(semconv.CALL_OPEN, rank, 19 * 15_000 + 12_000, detail="cudaStreamSynchronize") for rank in range(3)
    )
    assert find_hangs(evidence(slow, timing="host_api", quiet_ms=12_000, signs=opened)) == ()


@pytest.mark.parametrize(("call", "blamed"), [("cudaMalloc", [1]), ("cudaStreamSynchronize", [])])
def test_only_a_call_that_waits_for_gpus_clears_a_rank(call: str, blamed: list[int]) -> None:
    opened = (sign(semconv.CALL_OPEN, 1, 9000, detail=call),)
    assert ranks(only(evidence(SILENT, timing="host_api", quiet_ms=9000, signs=opened))) == blamed


def test_events_lost_about_then_make_it_less_sure() -> None:
    sure = only(evidence(SILENT, timing="host_api", quiet_ms=9000))
    gap = Gap("node-1", 12, START_NS + 385 * MS, START_NS + 395 * MS)
    unsure = only(evidence(SILENT, timing="host_api", quiet_ms=9000, gaps=(gap,)))
    assert unsure.confidence < sure.confidence
    assert "node-1 lost 12 events" in said(unsure)
    elsewhere = Gap("node-2", 12, gap.start_ns, gap.end_ns)
    assert only(evidence(SILENT, timing="host_api", quiet_ms=9000, gaps=(elsewhere,))).confidence == sure.confidence


ALL_INSIDE = {"signs": (sign(semconv.CALL_OPEN, 0, 20_000),), "timing": "host_api", "quiet_ms": 0}


@pytest.mark.parametrize(
    ("node", "ms", "named"), [("node-2", 395, [2]), ("node-2", -70_000, []), ("somewhere", 395, [])]
)
def test_a_gpu_fault_counts_if_it_is_of_this_job_and_of_then(node: str, ms: float, named: list[int]) -> None:
    xid = sign("gpu.xid", None, ms, node_id=node, detail="79")
    facts = ALL_INSIDE | {"signs": (*ALL_INSIDE["signs"], xid)}  # type: ignore[misc]
    found = only(evidence(rounds(range(3), 40, took=None), **facts))  # type: ignore[arg-type]
    assert ranks(found) == named
    assert found.cause == ("gpu_fault" if named else "unknown")


def test_a_gpu_fault_alone_is_no_hang() -> None:
    xid = sign("gpu.xid", 2, 395, detail="43")
    assert find_hangs(evidence(rounds(range(3), 40, took=None), timing="host_api", quiet_ms=9000, signs=(xid,))) == ()


def test_event_ids_are_those_of_the_calls() -> None:
    job = evidence(open_at(rounds(range(3), 10), (0, 8), (0, 9), (1, 9), (2, 9)), places={0: Place("a"), 1: Place("b")})
    found = only(job)
    assert found.statements[0].event_ids == ("a:24",)


SHAPES: dict[str, Callable[[list[int]], tuple[list[Entry], set[int]]]] = {
    "silent": lambda who: (
        [entry(rank, 9 if place else 8, "scheduled" if place else "completed") for place, rank in enumerate(who)],
        {who[0]},
    ),
    "stopped": lambda who: ([*(entry(rank, 9) for rank in who), entry(who[0], 8)], {who[0]}),
    "absent": lambda who: ([entry(rank, 9) for rank in who[1:]], {who[0]}),
    "mismatched": lambda who: (
        [entry(rank, 9, count=7 if place == 0 else 8) for place, rank in enumerate(who)],
        {who[0]},
    ),
    "ahead": lambda who: (
        [*(entry(rank, 8, "completed") for rank in who), entry(who[0], 9)],
        set(who[1:]),
    ),
}


@pytest.mark.parametrize("shape", sorted(SHAPES))
@given(order=st.permutations(range(5)))
def test_the_answer_follows_the_ranks(shape: str, order: list[int]) -> None:
    entries, guilty = SHAPES[shape](list(order))
    found = only(dumped(entries, members=range(5)))
    assert set(ranks(found)) == guilty
    assert not guilty & set(found.waiting_ranks)


@given(shifts=st.lists(st.integers(-(10**13), 10**13), min_size=4, max_size=4))
def test_who_hangs_does_not_depend_on_clocks(shifts: list[int]) -> None:
    seen = [
        Seen(one.rank, one.seq, one.ms + shifts[one.rank] / 1e6, one.took)
        for one in open_at(without(rounds(range(4), 12), 2, 11), (0, 11), (1, 11), (3, 11))
    ]
    found = only(evidence(seen))
    assert (found.cause, ranks(found), found.waiting_ranks) == ("unknown", [2], (0, 1, 3))


def test_names_of_communicators_are_used_where_there_are_any() -> None:
    found = only(dumped([*(entry(rank, 9) for rank in range(3)), entry(1, 8)], members=range(3)))
    assert "communicator 0 (default_pg)" in said(found)
    assert COMM not in said(found)
