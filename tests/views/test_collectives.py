"""The view `collectives`: every rank's place among its peers, whatever is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.clocks import NodeClock
from ingero_mcp.store import Store, open_store
from tests.views.rows import COMM, T0, S, ask, call, put

MS = 1_000_000
PLACES = "SELECT rank, lateness_ns, wait_ns, is_last, ranks_seen, missing FROM collectives"


@pytest.fixture
def memory() -> Iterator[Store]:
    with open_store(None) as store:
        yield store


def test_a_rank_is_late_by_the_median_of_the_others(memory: Store) -> None:
    put(memory, *(call(rank, 7, at) for rank, at in enumerate((10, 20, 90, 31))))
    assert ask(memory, f"{PLACES} ORDER BY rank") == [
        (0, -21, 80, False, 4, 0),
        (1, -11, 70, False, 4, 0),
        (2, 70, 0, True, 4, 0),
        (3, 11, 59, False, 4, 0),
    ]


def test_every_column_says_what_the_event_said(memory: Store) -> None:
    attrs = {"nccl.rank": 3, "nccl.count": 8, "nccl.datatype": "float32", "ingero.seq_origin": "init"}
    said = {"step": 4, "bytes": 32, "cpu_ns": 1, "blocked_ns": 2, "runq_ns": 3, "sync_ns": 4, "pid": 9, "event_seq": 11}
    put(
        memory, call(5, 7, 10, attrs=attrs, **said), call(6, 8, 10, duration_ns=None, attrs={"ingero.unfinished": True})
    )
    (first, second) = ask(memory, "SELECT * FROM collective_calls ORDER BY rank")
    assert first == (
        "c", "n", "j", COMM, 0, 7, "ncclAllReduce", 5, 3, T0 + 10, T0 + 15, 4, 32, 4, 1, 2, 3, 4, "host_api", 11, 9,
        "init", 8, "float32", False,
    )  # fmt: skip
    assert (second[10], second[-1]) == (None, True)
    assert ask(memory, "SELECT * FROM collectives WHERE rank = 5") == [
        ("c", "j", COMM, 0, 7, "ncclAllReduce", 5, 3, "n", T0 + 10, T0 + 15, 0, None, None, None, 4, 1, 3, 32, 1, 2, 3,
         4, "host_api", None, 4, "n:11"),
    ]  # fmt: skip


def test_whoever_is_alone_is_neither_late_nor_last(memory: Store) -> None:
    put(memory, call(0, 7, 10), call(1, 8, 10))
    assert ask(memory, f"{PLACES} ORDER BY rank") == [(0, None, None, None, 1, 3), (1, None, None, None, 1, 3)]


def test_no_filter_cuts_away_the_peers(memory: Store) -> None:
    put(memory, *(call(rank, 7, at) for rank, at in enumerate((10, 20, 90 * S, 31))))
    late = [(2, 90 * S - 20, 0, True, 4, 0)]
    for where in (f"enter_ns > {T0 + S}", "rank = 2", "is_last", f"enter_ns BETWEEN {T0 + S} AND {T0 + 99 * S}"):
        assert ask(memory, f"{PLACES} WHERE {where}") == late
    assert ask(memory, f"SELECT max(lateness_ns) FROM collectives WHERE enter_ns > {T0 + S}") == [(90 * S - 20,)]


def test_peers_are_those_of_the_same_collective(memory: Store) -> None:
    others: list[dict[str, Any]] = [
        {"cluster_id": "d"}, {"job_id": None}, {"comm_id": "00000000000000aa"}, {"coll_seq": 8},
        {"metric_name": "ncclSend"}, {"source": "probe"},
    ]  # fmt: skip
    put(memory, call(0, 7, 10), call(1, 7, 20), *({**call(2, 7, 90), **other} for other in others))
    assert ask(memory, f"{PLACES} WHERE rank < 2 ORDER BY rank") == [(0, -10, 10, False, 2, 2), (1, 10, 0, True, 2, 2)]
    put(memory, call(3, 9, 10, job_id=None), call(4, 9, 30, job_id=None))
    assert ask(memory, f"{PLACES} WHERE rank = 4") == [(4, 20, 0, True, 2, 2)]


def test_epochs_are_not_mixed(memory: Store) -> None:
    for start_ns in (0, 100 * S):
        put(memory, *(call(rank, seq, start_ns + seq * S + rank) for seq in range(5) for rank in range(4)))
    assert ask(memory, "SELECT epoch, ranks_seen, max(wait_ns), count(*) FROM collectives GROUP BY ALL ORDER BY 1") == [
        (0, 4, 3, 20),
        (1, 4, 3, 20),
    ]


def test_what_was_imported_twice_counts_once(memory: Store) -> None:
    calls = [call(rank, 7, at, node_id=f"n{rank}") for rank, at in enumerate((10, 20, 90))]
    put(memory, *calls)
    put(memory, *calls[1:])
    put(memory, {**calls[1], "duration_ns": 9})
    assert ask(memory, f"SELECT DISTINCT * FROM ({PLACES}) ORDER BY rank") == [
        (0, -45, 80, False, 3, 1),
        (1, -30, 70, False, 3, 1),
        (2, 75, 0, True, 3, 1),
    ]


def test_processes_whose_rank_is_not_known_are_peers_too(memory: Store) -> None:
    put(memory, *(call(None, 7, pid * 10, pid=pid, node_id=node) for pid in (1, 2) for node in ("a", "b")))
    assert ask(memory, "SELECT DISTINCT ranks_seen FROM collectives") == [(4,)]


def test_what_is_counted_from_an_arbitrary_moment_has_peers_in_the_same_step_only(memory: Store) -> None:
    attached = {"attrs": {"ingero.seq_origin": "attach"}, "step": 3}
    put(memory, call(0, 7, 10, **attached), call(1, 7, 20, **attached), call(2, 7, 30, step=3))
    put(memory, call(3, 7, 40, **attached | {"step": 4}), call(4, 7, 50, metric_name="ncclBroadcast", **attached))
    assert ask(memory, f"{PLACES} ORDER BY rank") == [
        (0, -10, 10, False, 2, 2),
        (1, 10, 0, True, 2, 2),
        *((rank, None, None, None, 1, 3) for rank in (2, 3, 4)),
    ]


def test_calls_that_are_counted_from_an_arbitrary_moment_and_say_no_step_have_no_peers(memory: Store) -> None:
    put(memory, call(0, 7, 10), call(1, 7, 20), call(2, 7, 90, attrs={"ingero.seq_origin": "attach"}))
    put(memory, call(3, 9, 90, attrs={"ingero.seq_origin": "attach"}))
    assert ask(memory, f"{PLACES} ORDER BY rank") == [
        (0, -10, 10, False, 2, 2),
        (1, 10, 0, True, 2, 2),
        (2, None, None, None, None, None),
        (3, None, None, None, None, None),
    ]


def clock(at_ns: int, offset_ns: int, node: str = "n0", rank: int | None = None, **more: Any) -> NodeClock:
    return NodeClock("c", node, rank, T0 + at_ns, offset_ns, more.get("bound", 5), more.get("method", "m"), "n1")


def test_clocks_are_corrected_before_anybody_is_late(memory: Store) -> None:
    put(memory, *(call(rank, 7, at, node_id=f"n{rank}") for rank, at in enumerate((50, 20, 30))))
    memory.keep_clocks([clock(0, 40)]).result(timeout=20)
    found = ask(memory, "SELECT rank, offset_ns, lateness_ns, wait_ns, clock_bound_ns FROM collectives ORDER BY rank")
    assert found == [(0, 40, -15, 20, 5), (1, 0, 0, 10, None), (2, 0, 15, 0, None)]


def test_the_newest_reading_before_a_call_holds_else_the_first_one_after_it(memory: Store) -> None:
    at = [0, 60 * S, 70 * S, 3600 * S, 3 * 86400 * S, 3 * 86400 * S + 5]
    for number in (3, 1, 5, 0, 4, 2):
        memory.keep_clocks([clock(at[number], number)]).result(timeout=20)
    times = [-99 * S, 0, 59 * S, 60 * S, 65 * S, 70 * S, 3599 * S, 3601 * S, 2 * 86400 * S, at[4], at[5], 2 * at[5]]
    put(memory, *(call(0, seq, enter, node_id="n0") for seq, enter in enumerate(times)))
    offsets = [offset for (offset,) in ask(memory, "SELECT offset_ns FROM collectives ORDER BY enter_ns")]
    assert offsets == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 5]


def test_a_reading_takes_the_place_of_the_one_before(memory: Store) -> None:
    put(memory, *(call(0, seq, seq * S, node_id="n0") for seq in range(5)))
    memory.keep_clocks([clock(0, 1), clock(2 * S, 2)]).result(timeout=20)
    memory.keep_clocks([clock(2 * S, 7), clock(2 * S, 3)]).result(timeout=20)
    # Of two methods at the same moment the surer one holds.
    memory.keep_clocks([clock(3 * S, 9, method="x", bound=9), clock(3 * S, 4, bound=3)]).result(timeout=20)
    memory.keep_clocks([clock(3 * S, 8, method="y", bound=None)]).result(timeout=20)
    offsets = [offset for (offset,) in ask(memory, "SELECT offset_ns FROM collectives ORDER BY enter_ns")]
    assert offsets == [1, 1, 3, 4, 4]
    assert ask(memory, "SELECT count(*) FROM clocks") == [(5,)]
    assert ask(memory, "SELECT * FROM clocks WHERE offset_ns = 3") == [("c", "n0", None, T0 + 2 * S, 3, 5, "m", "n1")]


def test_where_nodes_are_not_known_each_rank_has_its_clock(memory: Store) -> None:
    put(memory, *(call(rank, 7, 0, node_id="unknown") for rank in range(3)), call(3, 7, 0, node_id="n0"))
    memory.keep_clocks([clock(0, 5, "unknown", 1), clock(0, 6, "unknown", 2), clock(0, 8, "n0", 3)]).result(timeout=20)
    assert ask(memory, "SELECT rank, offset_ns FROM collectives ORDER BY rank") == [(0, 0), (1, 5), (2, 6), (3, 0)]


ENTRIES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 20)), max_size=40)


@settings(max_examples=30, deadline=None)
@given(ENTRIES, st.dictionaries(st.integers(0, 3), st.integers(-50, 50)))
def test_places_are_those_of_plain_arithmetic(entries: list[tuple[int, int, int]], offsets: dict[int, int]) -> None:
    once = {(rank, seq): at for rank, seq, at in entries}
    with open_store(None) as store:
        put(store, *(call(rank, seq, at, node_id=f"n{rank}") for (rank, seq), at in once.items()))
        store.keep_clocks([clock(0, offset, f"n{rank}") for rank, offset in offsets.items()]).result(timeout=20)
        found = ask(store, "SELECT rank, coll_seq, lateness_ns, wait_ns, is_last, ranks_seen, missing FROM collectives")
    expected = []
    for (rank, seq), at in once.items():
        own = at - offsets.get(rank, 0)
        others = [other - offsets.get(peer, 0) for (peer, of), other in once.items() if of == seq and peer != rank]
        place: tuple[Any, ...] = (None, None, None)
        if others:
            last = max(own, *others)
            # The median of times is a whole number, the lower one of two.
            place = (own - int(median(others) // 1), last - own, own == last)
        expected.append((rank, seq, *place, len(others) + 1, 4 - len(others) - 1))
    assert sorted(found) == sorted(expected)


def test_nanoseconds_are_exact(memory: Store) -> None:
    put(memory, *(call(rank, 7, at) for rank, at in enumerate((1, 2, 4))))
    assert ask(memory, "SELECT lateness_ns FROM collectives ORDER BY rank") == [(-2,), (0,), (3,)]
