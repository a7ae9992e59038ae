"""The loop of the watch: look, tell, pause; in a thread of its own, as long as the server runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

import anyio

from ingero_mcp.analysis.severity import SEVERITIES
from ingero_mcp.clock import WallClock, monotonic_s, now_ns
from ingero_mcp.errors import IngeroError
from ingero_mcp.notice import Notice
from ingero_mcp.store import Store
from ingero_mcp.turns import in_thread
from ingero_mcp.watch.chain_keeper import ChainKeeper, keep_chains
from ingero_mcp.watch.meters import Meters
from ingero_mcp.watch.news import News
from ingero_mcp.watch.payloads import headline
from ingero_mcp.watch.watcher import Watcher
from ingero_mcp.watch.webhook import Webhook

_log = logging.getLogger(__name__)

_PAUSE_PER_WORK: Final = 4.0
"""The watch takes at most a fifth of the time: after a look that took long the pause is longer."""


@dataclass(slots=True)
class Watch:
    """The watch of one server: how often it looks (0: never), and whom it tells."""

    every_s: float
    meters: Meters
    webhook: Webhook | None = None
    news: News = field(default_factory=News)

    async def run(self, store: Store, clock: WallClock = now_ns) -> None:
        """Watch until cancelled. A look that fails is counted and logged; the next one is another try."""
        if not self.every_s:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_chains, ChainKeeper(store, clock))
            if self.webhook is not None:
                tasks.start_soon(self.webhook.run)
            watcher = Watcher(store, clock)
            while True:
                begun_s = monotonic_s()
                self._tell(await _look(watcher, self.meters))
                took_s = monotonic_s() - begun_s
                self.meters.seconds.inc(took_s)
                await anyio.sleep(max(self.every_s - took_s, _PAUSE_PER_WORK * took_s))

    def _tell(self, told: list[Notice]) -> None:
        for notice in told:
            self.meters.told.labels(notice.what).inc()
            _log.warning("%s: %s", notice.what, headline(notice))
        if told:
            self.news.tell()
        if self.webhook is not None:
            self.webhook.put(told)


async def _look(watcher: Watcher, meters: Meters) -> list[Notice]:
    failures = watcher.failures
    try:
        told = await in_thread(watcher.look)
    except IngeroError as error:
        _log.info("the watch could not look this time: %s", error)
        meters.failures.inc()
        return []
    except Exception:  # a fault of ours must not end the server that receives
        _log.exception("the watch failed")
        meters.failures.inc()
        return []
    meters.looks.inc()
    meters.failures.inc(watcher.failures - failures)
    meters.last.set(now_ns() / 1e9)
    how_many = watcher.open_by_severity()
    for severity in SEVERITIES:
        meters.open.labels(severity).set(how_many[severity])
    return told
