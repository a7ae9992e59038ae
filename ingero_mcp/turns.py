"""Whose query runs next: calls run in worker threads, a few at once, and no client can take all places."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio import CapacityLimiter, to_thread

from ingero_mcp.clock import monotonic_s
from ingero_mcp.errors import QueryError, StoreBusy

LONGEST_WAIT_S: Final = 30.0
"""How long a call waits for its turn before it is told to come back later."""

_STOPPING_S: Final = 5.0
_Result = TypeVar("_Result")


Interrupt = Callable[[], None]


class Cancellation:
    """Carries "the client no longer wants this" from the event loop to the thread that runs the query."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._interrupt: Interrupt | None = None

    def cancel(self) -> None:
        """Interrupt the running query, and every later one of the same call before it starts."""
        with self._lock:
            self._cancelled = True
            if self._interrupt is not None:
                self._interrupt()

    def require_wanted(self) -> None:
        """QueryError if the call was cancelled: the next query of it need not start."""
        if self._cancelled:
            raise QueryError("the query was cancelled")

    def watch(self, interrupt: Interrupt) -> None:
        """Remember how to interrupt the query that is about to run."""
        with self._lock:
            self._interrupt = interrupt
            if self._cancelled:
                interrupt()

    def forget(self) -> None:
        """The query has ended; its cursor must not be interrupted any more."""
        with self._lock:
            self._interrupt = None


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a call waited for its turn, and how many were running when it came."""

    seconds: float
    running: int


async def in_thread(work: Callable[[Cancellation], _Result]) -> _Result:
    """Run `work` in a thread; when the caller is cancelled, its running query is interrupted and not waited for."""
    cancellation = Cancellation()
    try:
        return await to_thread.run_sync(work, cancellation, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        cancellation.cancel()
        raise


class Turns:
    """At most `places` calls at once, and one fewer of any client, so that another is never shut out."""

    def __init__(self, places: int, *, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self._places = places
        self._longest_wait_s = longest_wait_s
        self._all: CapacityLimiter | None = None
        self._threads: CapacityLimiter | None = None
        self._by_client: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()

    async def run(self, client: str, cancellation: Cancellation, work: Callable[[Wait], _Result]) -> _Result:
        """Run `work` in a thread once it is the client's turn; it is told how long that took.

        When the caller is cancelled, its running query is interrupted. StoreBusy if no turn came.
        """
        asked_s, running = monotonic_s(), self._running
        begun, ended = threading.Event(), threading.Event()
        async with self._turn(client):
            wait = Wait(monotonic_s() - asked_s, running)

            def in_thread() -> _Result:
                begun.set()
                try:
                    return work(wait)
                finally:
                    ended.set()

            try:
                return await to_thread.run_sync(in_thread, abandon_on_cancel=True, limiter=self._threads)
            except anyio.get_cancelled_exc_class():
                cancellation.cancel()
                if begun.is_set():
                    await _stop(cancellation, ended)
                raise

    @property
    def _running(self) -> int:
        return self._all.borrowed_tokens if self._all else 0

    @asynccontextmanager
    async def _turn(self, client: str) -> AsyncIterator[None]:
        # Limiters belong to an event loop, so they are made in it.
        if self._all is None:
            self._all, self._threads = CapacityLimiter(self._places), CapacityLimiter(self._places * 4)
        own = self._by_client.get(client)
        if own is None:
            own = self._by_client[client] = CapacityLimiter(max(1, self._places - 1))
        own_place = all_place = False
        try:
            with anyio.move_on_after(self._longest_wait_s) as patience:
                await own.acquire()
                own_place = True
                await self._all.acquire()
                all_place = True
            if patience.cancelled_caught:
                raise StoreBusy(
                    f"this call waited {self._longest_wait_s:g} s for its turn and did not start: "
                    f"{self._running} calls are running"
                )
            yield
        finally:
            if all_place:
                self._all.release()
            if own_place:
                own.release()


async def _stop(cancellation: Cancellation, ended: threading.Event) -> None:
    # An interrupt that comes just before the engine starts is lost, so it is repeated until the thread is done;
    # only then is the place given to another.
    with anyio.move_on_after(_STOPPING_S, shield=True):
        while not ended.is_set():
            cancellation.cancel()
            await anyio.sleep(0.01)
