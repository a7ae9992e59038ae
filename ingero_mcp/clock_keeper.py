"""Keeping clocks: every minute a live server reads off new collectives how far its nodes' clocks are apart."""

from __future__ import annotations

import logging
from typing import Final

import anyio
from anyio import to_thread

from ingero_mcp.clock import now_ns
from ingero_mcp.errors import IngeroError
from ingero_mcp.store import Store
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.node_clocks import node_clocks
from ingero_mcp.windows import Window

_log = logging.getLogger(__name__)

EVERY_S: Final = 60.0
"""Clocks that nobody disciplines drift by up to 30 us in a second: a reading is good for about a minute."""

_LOOK_BACK_NS: Final = 120_000_000_000


async def keep_clocks(store: Store) -> None:
    """Read and keep, until cancelled. What goes wrong is logged: the next minute is another try."""
    while True:
        await anyio.sleep(EVERY_S)
        try:
            await to_thread.run_sync(_once, store, abandon_on_cancel=True)
        except IngeroError as error:
            _log.info("clocks were not read this time: %s", error)


def _once(store: Store) -> None:
    end_ns = now_ns()
    window = Window(end_ns - _LOOK_BACK_NS, end_ns, "the last two minutes")
    if found := node_clocks(Call(store, now_ns), window):
        store.keep_clocks(found)
