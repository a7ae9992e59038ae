"""Many calls at once: nobody is shut out, waiting is said, and a cancelled call stops its query."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread
from mcp import Client
from mcp.types import Implementation

from ingero_mcp.errors import QueryError, StoreBusy
from ingero_mcp.events import Rows
from ingero_mcp.mcp_server import build
from ingero_mcp.sqlguard import CheckedQuery
from ingero_mcp.store import Store
from ingero_mcp.tools.call import Cancellation
from ingero_mcp.turns import Turns, Wait
from tests.tools.fleet import ANALYSIS, put, samples, text_of

pytestmark = pytest.mark.anyio


class Gate:
    """A reader whose queries run until they are let go or interrupted."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.interrupted = threading.Event()
        self.go = threading.Event()

    def query(
        self,
        query: CheckedQuery,
        *,
        limit: int,
        timeout_s: float | None = None,
        on_start: Callable[[Callable[[], None]], None] | None = None,
    ) -> Rows:
        if "'hold'" in query.text:
            assert on_start is not None
            on_start(self._interrupt)
            self.running.release()
            assert self.go.wait(10)
            if self.interrupted.is_set():
                raise QueryError("interrupted")
        return Rows(("text",), ("VARCHAR",), [(query.text,)])

    def _interrupt(self) -> None:
        self.interrupted.set()
        self.go.set()


def client_of(server: Any, era: str, name: str = "one") -> Client:
    return Client(server, mode=era, client_info=Implementation(name=name, version="1"))


async def test_thirty_calls_at_once_each_get_their_own_rows(store: Store, era: str) -> None:
    put(store, samples({f"n{place}": [place / 100] for place in range(30)}))
    answers: dict[int, Any] = {}
    async with client_of(build(store), era) as client:

        async def ask_for(place: int) -> None:
            sql = f"SELECT node_id, value_double FROM events WHERE node_id = 'n{place}'"
            answers[place] = await client.call_tool(ANALYSIS, {"sql": sql})

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for place in range(30):
                    tasks.start_soon(ask_for, place)
    for place, answer in answers.items():
        assert answer.structured_content["rows"] == [[f"n{place}", place / 100]]


async def test_a_client_that_takes_all_its_places_does_not_shut_out_another(era: str) -> None:
    gate = Gate()
    server = build(gate, turns=Turns(2))
    async with client_of(server, era, "greedy") as greedy, client_of(server, era, "modest") as modest:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(greedy.call_tool, ANALYSIS, {"sql": "SELECT 'hold'"})
                assert await to_thread.run_sync(gate.running.acquire)
                result = await modest.call_tool(ANALYSIS, {"sql": "SELECT 1"})
                assert not result.is_error
                assert not gate.go.is_set()
                gate.go.set()


async def test_a_call_that_had_to_wait_says_so(monkeypatch: pytest.MonkeyPatch, era: str) -> None:
    seconds = iter(range(0, 1000, 2))
    monkeypatch.setattr("ingero_mcp.turns.monotonic_s", lambda: float(next(seconds)))
    async with client_of(build(Gate()), era) as client:
        result = await client.call_tool(ANALYSIS, {"sql": "SELECT 1"})
        refused = await client.call_tool(ANALYSIS, {"sql": "DROP TABLE events"})
    said = "waited 2.0 s for its turn, because 0 calls were running, before it started"
    assert said in text_of(result)
    assert said in result.structured_content["notes"]
    assert said in text_of(refused)


async def test_a_call_whose_turn_does_not_come_is_told_so_and_never_runs() -> None:
    turns = Turns(2, longest_wait_s=0.05)
    release = threading.Event()
    started: list[str] = []

    def work(_: Wait) -> None:
        started.append("held")
        assert release.wait(10)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turns.run, "a", Cancellation(), work)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(StoreBusy, match="did not start: 1 calls are running"):
                await turns.run("a", Cancellation(), lambda _: started.append("second"))
            release.set()
    assert started == ["held"]


async def test_cancelling_a_call_interrupts_its_query(era: str) -> None:
    gate = Gate()
    async with client_of(build(gate), era) as client:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, ANALYSIS, {"sql": "SELECT 'hold'"})
                assert await to_thread.run_sync(gate.running.acquire)
                tasks.cancel_scope.cancel()
            assert await to_thread.run_sync(gate.interrupted.wait, 10)
            result = await client.call_tool(ANALYSIS, {"sql": "SELECT 1"})
            assert not result.is_error


async def test_cancelling_stops_a_real_query(store: Store, era: str) -> None:
    started, ended = threading.Event(), threading.Event()

    class Watched:
        def query(self, query: CheckedQuery, *, on_start: Any = None, **how: Any) -> Rows:
            def note_start(interrupt: Callable[[], None]) -> None:
                on_start(interrupt)
                started.set()

            try:
                return store.query(query, on_start=note_start, **how)
            finally:
                ended.set()

    sql = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 7"
    async with client_of(build(Watched()), era) as client:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, ANALYSIS, {"sql": sql})
                assert await to_thread.run_sync(started.wait, 10)
                tasks.cancel_scope.cancel()
            assert await to_thread.run_sync(ended.wait, 5)


def test_a_cancelled_call_starts_no_further_query() -> None:
    cancellation = Cancellation()
    interrupted: list[int] = []
    cancellation.watch(lambda: interrupted.append(1))
    cancellation.cancel()
    cancellation.forget()
    cancellation.cancel()
    assert interrupted == [1]
    with pytest.raises(QueryError, match="cancelled"):
        cancellation.require_wanted()
