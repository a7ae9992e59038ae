"""Ranks that were met in the middle of a job: joined by what they called, or left out and said to be."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ingero_mcp.analysis.align import aligned
from tests.analysis.seen import COMM, Seen, evidence


def varied(ranks: int, count: int, seed: int = 1) -> list[Seen]:
    """Collectives of different sizes, the same on all ranks."""
    dice = random.Random(seed)
    sizes = [dice.choice((1 << 10, 1 << 12, 1 << 16, 1 << 20)) for _ in range(count)]
    return [Seen(rank, seq, seq * 10.0, bytes=sizes[seq]) for seq in range(count) for rank in range(ranks)]


def met_late(seen: list[Seen], rank: int, first: int) -> list[Seen]:
    """The rank is met at collective `first`, and counts from 0 there."""
    kept = [one for one in seen if one.rank != rank or one.seq >= first]
    return [replace(one, seq=one.seq - first) if one.rank == rank else one for one in kept]


def pairs(found: object, rank: int) -> list[tuple[int, int]]:
    """(number, entry) of the calls of a rank."""
    calls = found.calls  # type: ignore[attr-defined]
    mine = calls.rank == rank
    return sorted(zip(calls.seq[mine].tolist(), calls.enter_ns[mine].tolist(), strict=True))


@pytest.mark.parametrize("first", [1, 7, 60])
def test_a_late_rank_is_numbered_as_its_peers(first: int) -> None:
    seen = varied(3, 150)
    found = aligned(evidence(met_late(seen, 2, first), attached=frozenset({(COMM, 2)})))
    assert pairs(found, 2) == [pair for pair in pairs(evidence(seen), 0) if pair[0] >= first]
    assert not found.unaligned and not found.notes
    together = found.calls.collective[found.calls.rank == 2]
    assert set(together) <= set(found.calls.collective[found.calls.rank == 0])


def test_lost_events_do_not_move_what_follows_them() -> None:
    seen = varied(3, 150)
    late = [one for one in met_late(seen, 2, 30) if one.rank != 2 or one.seq not in (10, 11, 40)]
    found = aligned(evidence(late, attached=frozenset({(COMM, 2)})))
    expected = [pair for pair in pairs(evidence(seen), 0) if pair[0] >= 30 and pair[0] - 30 not in (10, 11, 40)]
    assert pairs(found, 2) == expected


def test_a_sequence_that_repeats_cannot_be_aligned_and_is_left_out() -> None:
    seen = [Seen(rank, seq, seq * 10.0) for seq in range(40) for rank in range(3)]
    found = aligned(evidence(met_late(seen, 1, 8), attached=frozenset({(COMM, 1)})))
    assert found.unaligned == {1}
    assert set(found.calls.rank.tolist()) == {0, 2}
    assert "rank 1 was met in the middle of the job" in found.notes[0]
    assert "unaligned" in found.notes[0]


def test_without_steps_and_without_a_rank_from_the_beginning_the_longest_is_the_measure() -> None:
    seen = met_late(met_late(varied(3, 150), 1, 20), 2, 35)
    found = aligned(evidence(seen, attached=frozenset((COMM, rank) for rank in range(3))))
    assert not found.unaligned
    times = {rank: dict(pairs(found, rank)) for rank in range(3)}
    shared = set(times[0]) & set(times[1]) & set(times[2])
    assert len(shared) == 115
    assert all(times[0][seq] == times[1][seq] == times[2][seq] for seq in shared)


def test_steps_align_ranks_whose_collectives_repeat() -> None:
    seen = [
        Seen(rank, 2 * step + n, step * 10.0 + n, step=step) for step in range(20) for n in range(2) for rank in (0, 1)
    ]
    late = met_late(seen, 1, 9)
    found = aligned(evidence(late, attached=frozenset({(COMM, 0), (COMM, 1)})))
    assert not found.unaligned
    whole = {seq: at for seq, at in pairs(found, 1) if seq in dict(pairs(found, 0))}
    # The step in whose middle the rank was met begins with another of its collectives; from then on all is right.
    assert all(dict(pairs(found, 0))[seq] == at for seq, at in list(whole.items())[1:])


def test_a_rank_with_too_few_calls_is_left_out_rather_than_guessed() -> None:
    seen = varied(2, 100)
    found = aligned(evidence(met_late(seen, 1, 96), attached=frozenset({(COMM, 1)})))
    assert found.unaligned == {1}


def test_nothing_changes_where_nobody_was_met_late() -> None:
    seen = evidence(varied(2, 10))
    assert aligned(seen) is seen
    assert len(aligned(evidence([], attached=frozenset({(COMM, 1)}))).calls) == 0


def test_numbers_that_somebody_made_up_do_not_take_the_memory() -> None:
    seen = [*varied(2, 40), Seen(1, 2**62, 500.0)]
    found = aligned(evidence(seen, attached=frozenset({(COMM, 1)})))
    assert len(found.calls) >= 40
