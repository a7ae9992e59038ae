"""The loop of the watch: look, tell, pause; in a thread of its own, as long as the server runs."""

from __future__ import annotations

import logging
from typing import Final

import anyio
from anyio import to_thread

from ingero_mcp.analysis.episodes import SEVERITIES
from ingero_mcp.clock import monotonic_s, now_ns
from ingero_mcp.errors import IngeroError
from ingero_mcp.notice import Notice
from ingero_mcp.turns import Cancellation
from ingero_mcp.watch.meters import Meters
from ingero_mcp.watch.news import News
from ingero_mcp.watch.payloads import headline
from ingero_mcp.watch.watcher import Watcher
from ingero_mcp.watch.webhook import Webhook

_log = logging.getLogger(__name__)

_PAUSE_PER_WORK: Final = 4.0
"""The watch takes at most a fifth of the time: after a look that took long the pause is longer."""


async def keep_watching(watcher: Watcher, every_s: float, news: News, webhook: Webhook | None, meters: Meters) -> None:
    """Watch until cancelled. A look that fails is counted and logged; the next one is another try."""
    async with anyio.create_task_group() as tasks:
        if webhook is not None:
            tasks.start_soon(webhook.run)
        while True:
            begun_s = monotonic_s()
            told = await _look(watcher, meters)
            for notice in told:
                meters.told.labels(notice.what).inc()
                _log.warning("%s: %s", notice.what, headline(notice))
            if told:
                news.tell()
            if webhook is not None:
                webhook.put(told)
            took_s = monotonic_s() - begun_s
            meters.seconds.inc(took_s)
            await anyio.sleep(max(every_s - took_s, _PAUSE_PER_WORK * took_s))


async def _look(watcher: Watcher, meters: Meters) -> list[Notice]:
    cancellation, failures = Cancellation(), watcher.failures
    try:
        told = await to_thread.run_sync(watcher.look, cancellation, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        cancellation.cancel()
        raise
    except IngeroError as error:
        _log.info("the watch could not look this time: %s", error)
        meters.failures.inc()
        return []
    meters.looks.inc()
    meters.failures.inc(watcher.failures - failures)
    meters.last.set(now_ns() / 1e9)
    how_many = watcher.open_by_severity()
    for severity in SEVERITIES:
        meters.open.labels(severity).set(how_many[severity])
    return told
