"""Keeping chains: every minute a live server computes the causal chains of its nodes and keeps those that are new."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

import anyio

from ingero_mcp.analysis.chains.chain import Chain
from ingero_mcp.analysis.chains.rows import context_batch
from ingero_mcp.clock import WallClock, monotonic_s
from ingero_mcp.errors import IngeroError
from ingero_mcp.store import Store
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.found import computed_chains
from ingero_mcp.turns import Cancellation, in_thread
from ingero_mcp.windows import Window

_log = logging.getLogger(__name__)

EVERY_S: Final = 60.0
"""Chains are cut by whole minutes: more often there is nothing new."""

_BACK_NS: Final = 300_000_000_000
_PAUSE_PER_WORK: Final = 9.0
_MOST_KNOWN: Final = 10_000


@dataclass(slots=True)
class ChainKeeper:
    """Keeps the chains of the last minutes in `store`; `clock` says what time it is."""

    store: Store
    clock: WallClock
    _kept: dict[str, Chain] = field(default_factory=dict)

    def keep(self, cancellation: Cancellation) -> int:
        """Compute and store what is new or has changed; returns how many. IngeroError if that fails."""
        now_ns = self.clock()
        call = Call(self.store, self.clock, cancellation=cancellation)
        found = computed_chains(call, Window(now_ns - _BACK_NS, now_ns, "the last five minutes"))
        changed = [chain for chain in found if self._kept.get(chain.chain_id) != chain]
        if changed:
            self.store.append_context(context_batch(changed, now_ns)).result()
        if len(self._kept) > _MOST_KNOWN:
            self._kept.clear()
        self._kept |= {chain.chain_id: chain for chain in changed}
        return len(changed)


async def keep_chains(keeper: ChainKeeper) -> None:
    """Compute and keep, until cancelled. What goes wrong is logged: the next minute is another try."""
    while True:
        begun_s = monotonic_s()
        try:
            await in_thread(keeper.keep)
        except IngeroError as error:
            _log.info("chains were not computed this time: %s", error)
        except Exception:  # what one recording makes stumble must not end the server
            _log.exception("computing causal chains failed")
        took_s = monotonic_s() - begun_s
        await anyio.sleep(max(EVERY_S - took_s, _PAUSE_PER_WORK * took_s))
