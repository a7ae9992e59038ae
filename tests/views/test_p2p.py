"""The view `p2p`: the two ends of a transfer find each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ingero_mcp.store import Store, open_store
from tests.views.rows import COMM, T0, S, ask, call, put

ENDS = f"SELECT coll_seq, src_rank, dst_rank, send_enter_ns - {T0}, recv_enter_ns - {T0} FROM p2p"


@pytest.fixture
def memory() -> Iterator[Store]:
    with open_store(None) as store:
        yield store


def end(name: str, place: int, peer: int, seq: int, enter_ns: int, **columns: Any) -> dict[str, Any]:
    """A send or receive; the rank with place n in the communicator is rank 10 + n of the job."""
    usual = {"metric_name": name, "node_id": f"n{place}", "attrs": {"nccl.rank": place, "nccl.peer_rank": peer}}
    return call(10 + place, seq, enter_ns, **(usual | columns))


def send(source: int, destination: int, seq: int, enter_ns: int, **columns: Any) -> dict[str, Any]:
    return end("ncclSend", source, destination, seq, enter_ns, **columns)


def receive(source: int, destination: int, seq: int, enter_ns: int, **columns: Any) -> dict[str, Any]:
    return end("ncclRecv", destination, source, seq, enter_ns, **columns)


def test_a_send_and_its_receive_are_one_row(memory: Store) -> None:
    put(memory, send(0, 1, 3, 10, bytes=64, duration_ns=7), receive(0, 1, 3, 30, step=2, duration_ns=None))
    assert ask(memory, "SELECT * FROM p2p") == [
        ("c", "j", COMM, 3, 10, 11, 0, 1, "n0", "n1", T0 + 10, T0 + 10, T0 + 17, T0 + 30, None, 64, 2, "host_api")
    ]


def test_a_side_that_is_missing_is_shown_as_missing(memory: Store) -> None:
    put(memory, send(0, 1, 3, 10), receive(1, 2, 5, 20), receive(0, 1, 4, 30))
    assert ask(memory, f"{ENDS} ORDER BY enter_ns") == [
        (3, 10, None, 10, None),
        (5, None, 12, None, 20),
        (4, None, 11, None, 30),
    ]


def test_ends_are_told_apart_by_pair_direction_and_communicator(memory: Store) -> None:
    put(memory, send(0, 1, 0, 10), send(1, 0, 0, 20), send(0, 2, 0, 30), send(0, 1, 0, 40, comm_id="00000000000000aa"))
    put(memory, receive(1, 0, 0, 21), receive(0, 2, 0, 31), receive(0, 1, 0, 11), receive(0, 1, 0, 12, job_id=None))
    assert ask(memory, f"{ENDS} ORDER BY enter_ns") == [
        (0, 10, 11, 10, 11),
        (0, None, 11, None, 12),
        (0, 11, 10, 20, 21),
        (0, 10, 12, 30, 31),
        (0, 10, None, 40, None),
    ]


def test_a_filter_by_time_keeps_the_other_end(memory: Store) -> None:
    put(memory, send(0, 1, 3, 10), receive(0, 1, 3, 99 * S), send(0, 1, 4, 99 * S), receive(0, 1, 4, 20))
    assert ask(memory, f"{ENDS} WHERE enter_ns > {T0 + S}") == [(4, 10, 11, 99 * S, 20)]
    assert ask(memory, f"{ENDS} WHERE send_enter_ns < {T0 + S}") == [(3, 10, 11, 10, 99 * S)]


def test_numbers_that_begin_anew_pair_in_their_order(memory: Store) -> None:
    put(memory, *(send(0, 1, seq, run * 99 * S + seq) for run in range(2) for seq in range(3)))
    put(memory, *(receive(0, 1, seq, run * 99 * S + seq + 50) for run in range(2) for seq in range(3)))
    put(memory, receive(0, 1, 0, 200 * S))
    found = ask(memory, f"{ENDS} ORDER BY enter_ns, recv_enter_ns")
    assert [row[4] - row[3] for row in found[:-1]] == [50] * 6
    assert found[-1] == (0, None, 11, None, 200 * S)


def test_what_was_imported_twice_pairs_once(memory: Store) -> None:
    for _ in range(2):
        put(memory, send(0, 1, 3, 10), receive(0, 1, 3, 30))
    assert ask(memory, f"SELECT DISTINCT * FROM ({ENDS})") == [(3, 10, 11, 10, 30)]


def test_the_place_in_a_communicator_of_the_whole_job_is_the_rank(memory: Store) -> None:
    whole = {"nranks": 4, "world_size": 4, "rank": 0}
    put(memory, {**send(0, 1, 3, 10, attrs={"nccl.peer_rank": 1}), **whole}, receive(0, 1, 3, 30))
    assert ask(memory, ENDS) == [(3, 0, 11, 10, 30)]


def test_an_end_that_does_not_say_its_peer_stands_alone(memory: Store) -> None:
    put(memory, send(0, 1, 3, 10, attrs={}), receive(0, 1, 3, 30, attrs={}), call(0, 3, 40, metric_name="ncclSendRecv"))
    assert ask(memory, f"{ENDS} ORDER BY enter_ns") == [(3, 10, None, 10, None), (3, None, 11, None, 30)]
