"""Members that call different things at one position: no rank's call is the truth, a tie names nobody."""

from __future__ import annotations

import pytest

from ingero_mcp.analysis.evidence import Entry, Evidence
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.frontier import live_frontier, recorded_frontier
from ingero_mcp.analysis.mismatches import mismatched
from tests.analysis.seen import COMM, Seen, dumped, entry, evidence, rounds


def recorded(entries: list[Entry], members: int) -> tuple[Finding, ...]:
    seen = dumped(entries, members=range(members))
    return mismatched(seen, recorded_frontier(seen))


def live(seen: Evidence) -> tuple[Finding, ...]:
    return mismatched(seen, live_frontier(seen))


def names(found: tuple[Finding, ...]) -> list[int]:
    (one,) = found
    return [culprit.rank for culprit in one.culprits]


@pytest.mark.parametrize("odd", [{0, 5}, {6, 7}, {3}])
def test_the_smaller_group_differs_whoever_is_in_it(odd: set[int]) -> None:
    found = recorded([entry(rank, 39, count=1025 if rank in odd else 262_144) for rank in range(8)], 8)
    assert names(found) == sorted(odd)
    (one,) = found
    assert (one.verdict, one.cause) == ("hang", "mismatched_collective")
    assert {group.ranks for group in one.groups} == {tuple(sorted(odd)), tuple(sorted(set(range(8)) - odd))}
    assert "of 1025" in one.statements[0].statement and "at position 39" in one.statements[0].statement
    assert one.statements[0].event_ids == tuple(entry(rank, 39).event_id for rank in sorted(odd))


def test_two_against_each_other_name_nobody() -> None:
    found = recorded([entry(0, 9, count=16), entry(1, 9, count=40)], 2)
    assert names(found) == []
    assert "cannot be told" in found[0].summary[1]
    assert {group.ranks for group in found[0].groups} == {(0,), (1,)}
    assert found[0].confidence < 0.9


def test_the_largest_of_three_groups_is_believed_only_if_it_is_larger_than_each_other() -> None:
    three = {0: 1, 1: 2, 2: 3, 3: 3}
    assert names(recorded([entry(rank, 9, count=count) for rank, count in three.items()], 4)) == [0, 1]
    tied = {0: 1, 1: 2, 2: 2, 3: 3, 4: 3}
    assert names(recorded([entry(rank, 9, count=count) for rank, count in tied.items()], 5)) == []


def test_a_majority_of_those_seen_is_none_if_as_many_were_not_seen() -> None:
    entries = [entry(0, 9, count=1), entry(1, 9, count=2), entry(2, 9, count=2)]
    assert names(recorded(entries, 3)) == [0]
    assert names(recorded(entries, 8)) == []


def test_another_operation_or_datatype_is_a_mismatch_too() -> None:
    operations = [entry(rank, 9, op="ncclReduceScatter" if rank == 2 else "ncclAllReduce") for rank in range(4)]
    assert names(recorded(operations, 4)) == [2]
    types = [entry(rank, 9, datatype="float32" if rank == 1 else "bfloat16") for rank in range(4)]
    assert names(recorded(types, 4)) == [1]


@pytest.mark.parametrize("op", ["ncclAlltoAll", "ncclBroadcast", "nccl.coalesced"])
def test_sizes_that_may_differ_are_no_mismatch(op: str) -> None:
    assert recorded([entry(rank, 9, op=op, count=100 + rank) for rank in range(4)], 4) == ()
    sizes = [Seen(rank, 9, 90.0, None, op, bytes=100 + rank) for rank in range(4)]
    assert live(evidence([*rounds(range(4), 9, took=None), *sizes], timing="host_api")) == ()


def test_what_not_everybody_says_is_not_compared() -> None:
    said = {0: (None, "float32"), 1: (1024, None), 2: (1024, "float32")}
    entries = [entry(rank, 9, count=count, datatype=kind) for rank, (count, kind) in said.items()]
    assert recorded(entries, 3) == ()
    silent = [Seen(0, 9, 90.0, bytes=None), Seen(1, 9, 90.0), Seen(2, 9, 90.0)]
    assert live(evidence([*rounds(range(3), 9), *silent])) == ()


def test_only_positions_that_did_not_end_are_asked_about() -> None:
    ended = [entry(rank, 8, "completed", count=100 + rank) for rank in range(3)]
    assert recorded([*ended, *(entry(rank, 9) for rank in range(3))], 3) == ()


def test_hosts_may_have_gone_on_after_the_mismatch() -> None:
    odd = [Seen(rank, 20, 200.0, None, bytes=8 if rank == 1 else 4096) for rank in range(4)]
    after = [Seen(rank, seq, seq * 10.0, None) for seq in range(21, 30) for rank in range(4)]
    seen = evidence([*rounds(range(4), 20, took=None), *odd, *after], timing="host_api")
    found = live(seen)
    assert names(found) == [1]
    assert "at collective 20" in found[0].summary[0]
    assert found[0].statements[0].event_ids == ("node-1:81",)


def test_a_job_that_went_on_for_long_does_not_hang_of_it() -> None:
    odd = [Seen(rank, 20, 200.0, None, bytes=8 if rank == 1 else 4096) for rank in range(4)]
    after = [Seen(rank, seq, seq * 10.0, None) for seq in range(21, 1500) for rank in range(4)]
    assert live(evidence([*rounds(range(4), 20, took=None), *odd, *after], timing="host_api")) == ()


def test_numbers_that_mean_different_things_are_no_mismatch() -> None:
    """A rank that counts from another moment than its peers differs nearly everywhere."""
    sizes = [1 << (seq % 7) for seq in range(60)]
    seen = [Seen(rank, seq, seq * 10.0, bytes=sizes[seq + rank]) for seq in range(50) for rank in range(3)]
    assert live(evidence(seen)) == ()


def test_each_communicator_has_its_own_positions() -> None:
    seen = [*rounds([0, 1], 5), *rounds([0, 1], 5, comm="other", bytes=64)]
    assert live(evidence(seen)) == ()
    assert COMM not in str(
        live(evidence([*seen, Seen(0, 5, 50.0, comm="other"), Seen(1, 5, 50.0, comm="other", bytes=8)]))
    )
