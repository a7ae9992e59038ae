"""What a live server keeps of the causal chains of its nodes."""

from __future__ import annotations

from ingero_mcp.store import Store
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.found import chains
from ingero_mcp.turns import Cancellation
from ingero_mcp.watch.chain_keeper import ChainKeeper
from tests.tools.slow_node import incident, launches, second, store_rows

MINUTE_S = 60


def kept(store: Store) -> list[tuple[object, ...]]:
    call = Call(store, None)
    rows = call.read("SELECT chain_id, kind, severity, start_ns, end_ns FROM chains ORDER BY start_ns", 100).rows
    return [tuple(row) for row in rows]


def test_an_incident_is_kept_once_however_often_it_is_computed(store: Store) -> None:
    store_rows(store, launches(0, 600))
    store_rows(store, incident(400))
    keeper = ChainKeeper(store, lambda: second(460))
    assert keeper.keep(Cancellation()) > 0
    first = kept(store)
    assert len(first) == len({row[0] for row in first}) > 0
    assert keeper.keep(Cancellation()) == 0
    # A server that was restarted does not know what was kept; the view shows each once all the same.
    ChainKeeper(store, lambda: second(500)).keep(Cancellation())
    assert [row[0] for row in kept(store)] == [row[0] for row in first]
    assert {one.origin for one in chains(Call(store, None), None).shown} == {"computed"}


def test_what_is_long_ago_is_not_computed_again(store: Store) -> None:
    store_rows(store, launches(0, 600))
    store_rows(store, incident(100))
    assert ChainKeeper(store, lambda: second(3600)).keep(Cancellation()) == 0


def test_two_identical_incidents_an_hour_apart_are_kept_as_two(store: Store) -> None:
    for begin_s in (400, 4000):
        store_rows(store, launches(begin_s - 400, begin_s + 200))
        store_rows(store, incident(begin_s))
        ChainKeeper(store, lambda at_s=begin_s: second(at_s + 60)).keep(Cancellation())  # type: ignore[misc]
    found = kept(store)
    assert len(found) == len({row[0] for row in found}) >= 2
    assert len({row[3] for row in found}) >= 2
