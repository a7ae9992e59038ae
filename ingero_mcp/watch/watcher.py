"""The watcher: one round of looks at the jobs that run, and what has changed since the round before."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import pyarrow as pa

from ingero_mcp.analysis.episodes import Change, Episode, Sighting, advance, shares_cause
from ingero_mcp.analysis.severity import Severity
from ingero_mcp.cells import escaped
from ingero_mcp.clock import WallClock
from ingero_mcp.errors import IngeroError, QueryError, QueryTimeout
from ingero_mcp.notice import Cost, Notice, batch_of
from ingero_mcp.store import Store
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explanation import Lost
from ingero_mcp.tools.kept_stalls import kept_stalls
from ingero_mcp.tools.lost import lost
from ingero_mcp.tools.stalls import LEAST_BACK_NS, Look, Running, back_ns, look_at, running_jobs
from ingero_mcp.tools.timeline import timeline
from ingero_mcp.turns import Cancellation
from ingero_mcp.watch.remembered import Details, episode_of, notice_of
from ingero_mcp.windows import Window

_log = logging.getLogger(__name__)

FORGET_NS: Final = 600_000_000_000
"""A job that nothing was heard of for so long is gone; what held it up is over."""

_DAY_NS: Final = 86_400_000_000_000
_LEAST_NS: Final = 5_000_000_000
_AHEAD_NS: Final = _DAY_NS  # what the receiver takes: a node's clock may be ahead of this server's
_HOURS_A_DAY: Final = 24
_MOST_JOBS: Final = 64
"""So many jobs are looked at in one look; where there are more they take turns."""

_SILENT_NS: Final = 10_000_000_000
_LONG_SILENT_NS: Final = 30_000_000_000
_SELDOM_NS: Final = 60_000_000_000
"""Of a job that has been silent for long a look tells what the look before did; so often is enough."""

_Key: TypeAlias = tuple[str | None, str | None]


@dataclass(slots=True)
class _Watched:
    """What is remembered of a job from round to round."""

    episodes: tuple[Episode, ...] = ()
    details: dict[str, Details] = field(default_factory=dict)
    step_ns: int | None = None
    most_back_ns: int = _DAY_NS
    heard_ns: int = 0
    newest_ns: int = 0
    looked_ns: int = 0
    has_failed: bool = False

    @property
    def back_ns(self) -> int:
        """How far to look back."""
        wanted_ns = back_ns(self.step_ns, max((one.latest.period_ns or 0 for one in self.episodes), default=None))
        return min(wanted_ns, self.most_back_ns)


@dataclass(slots=True)
class Watcher:
    """Looks at the jobs in `store`; `clock` says what time it is. `failures` counts looks at a job that failed."""

    store: Store
    clock: WallClock
    failures: int = 0
    _jobs: dict[_Key, _Watched] = field(default_factory=dict)
    _has_begun: bool = False

    def open_by_severity(self) -> Counter[Severity]:
        """How many stalls go on."""
        return Counter(one.latest.severity for job in self._jobs.values() for one in job.episodes if one.is_open)

    def look(self, cancellation: Cancellation) -> list[Notice]:
        """Look at every job that runs once, keep in the store what has changed, and return it.

        IngeroError where the store does not answer; where it only cannot keep anything, that is logged.
        """
        call = Call(self.store, self.clock, cancellation=cancellation)
        now_ns = self.clock()
        if not self._has_begun:
            self._remember(call, now_ns)
        running = running_jobs(call, Window(now_ns - FORGET_NS, now_ns + _AHEAD_NS, ""))
        told = [notice for one in self._next(running) for notice in self._look_at(call, one, now_ns)]
        told += self._gone({(one.cluster_id, one.job_id) for one in running}, now_ns)
        # Each at a time of its own, so that whoever asks for what came after one misses none.
        told = [_told_at(notice, now_ns + place) for place, notice in enumerate(told)]
        self._keep(told)
        return told

    def _next(self, running: list[Running]) -> list[Running]:
        """Which jobs this look is about, where there are too many: what is held up, then who has waited longest."""

        def turn(one: Running) -> tuple[bool, int]:
            watched = self._jobs.get((one.cluster_id, one.job_id), _Watched())
            return not any(episode.is_open for episode in watched.episodes), watched.looked_ns

        return sorted(running, key=turn)[:_MOST_JOBS]

    def _remember(self, call: Call, now_ns: int) -> None:
        """Take up what a watch before this one had not seen the end of."""
        for notice in kept_stalls(call, only_open=True):
            watched = self._jobs.setdefault((notice.cluster_id, notice.job_id), _Watched(heard_ns=now_ns))
            watched.episodes += (episode_of(notice),)
            watched.details[notice.id] = Details(notice.timeline, notice.cost)
        self._has_begun = True

    def _keep(self, told: Iterable[Notice]) -> None:
        rows = [batch_of(notice) for notice in told]
        if not rows:
            return
        try:
            (together,) = pa.Table.from_batches(rows).combine_chunks().to_batches()
            self.store.append_context(together).result()
        except IngeroError as error:
            _log.warning("findings of the watch were not stored: %s", error)

    def _look_at(self, call: Call, running: Running, now_ns: int) -> list[Notice]:
        watched = self._jobs.setdefault((running.cluster_id, running.job_id), _Watched())
        watched.heard_ns = now_ns
        is_old = running.newest_ns == watched.newest_ns and now_ns - running.newest_ns > _LONG_SILENT_NS
        if is_old and now_ns - watched.looked_ns < _SELDOM_NS:
            return []
        watched.newest_ns, watched.looked_ns = running.newest_ns, now_ns
        try:
            look = look_at(call, running, now_ns, watched.back_ns)
        except Exception as error:  # one job that cannot be looked at must not blind the watch for the others
            self._note_failure(watched, running, error)
            return []
        watched.has_failed = False
        watched.step_ns = look.step_ns
        newest_ns = now_ns if now_ns - running.newest_ns > _SILENT_NS else running.newest_ns
        seen = [sighting for _, sighting in look.seen]
        watched.episodes, changes = advance(
            watched.episodes, seen, job=running.job_id or "job", now_ns=now_ns, newest_ns=newest_ns
        )
        return [self._told(call, watched, look, change, now_ns) for change in changes]

    def _note_failure(self, watched: _Watched, running: Running, error: Exception) -> None:
        """Count it, and say it once until the job can be looked at again."""
        self.failures += 1
        if isinstance(error, QueryError | QueryTimeout) and watched.back_ns > 2 * _LEAST_NS:
            # A job of very many ranks or events: what is too much for two minutes may do for one.
            watched.most_back_ns = watched.back_ns // 2
        if not watched.has_failed:
            why = None if isinstance(error, IngeroError) else error
            _log.warning("job %s cannot be watched: %s", escaped(str(running.job_id)), error, exc_info=why)
        watched.has_failed = True

    def _told(self, call: Call, watched: _Watched, look: Look, change: Change, now_ns: int) -> Notice:
        episode = change.episode
        if change.what != "closed":
            try:
                details = _details(call, look, episode.latest)
            except Exception as error:  # what it cost and what came before is worth knowing, and can be missed
                _log.info("what happened before a stall of job %s was not read: %s", episode.id, error)
                details = None
            if details is not None:
                watched.details[episode.id] = details
        window = look.window
        if change.what == "closed":
            # Whoever looks at it afterwards wants to see the bad steps, however long it took to be sure of the end.
            begin_ns = min(window.start_ns, episode.latest.last_bad_ns - LEAST_BACK_NS)
            window = replace(window, start_ns=begin_ns)
        details = watched.details.get(episode.id, Details())
        return notice_of(change, look.running.cluster_id, look.running.job_id, window, now_ns, details)

    def _gone(self, seen: set[_Key], now_ns: int) -> list[Notice]:
        """The ends of what held up jobs that nothing is heard of any more."""
        told = []
        for key in self._jobs.keys() - seen:
            watched = self._jobs[key]
            if now_ns - watched.heard_ns < FORGET_NS:
                continue
            for episode in watched.episodes:
                if episode.is_open:
                    last_ns = max(episode.latest.last_bad_ns, episode.since_ns)
                    closed = Change("closed", replace(episode, end_ns=last_ns))
                    window = Window(last_ns - LEAST_BACK_NS, last_ns + 1, "")
                    details = watched.details.get(episode.id, Details())
                    told.append(notice_of(closed, *key, window, now_ns, details))
            del self._jobs[key]
        return told


def _told_at(notice: Notice, at_ns: int) -> Notice:
    """The notice told at that time; what is told of first is detected then."""
    if notice.what == "opened" and notice.detected_ns == notice.updated_ns:
        return replace(notice, updated_ns=at_ns, detected_ns=at_ns)
    return replace(notice, updated_ns=at_ns)


def _details(call: Call, look: Look, latest: Sighting) -> Details | None:
    """What the first culprit did, and what all of it costs in a day; None if the look does not see it."""
    found = [
        one for one, seen in look.seen if seen is latest or seen.ranks == latest.ranks or shares_cause(seen, latest)
    ]
    found = [one for one in found if one.verdict == latest.verdict]
    if not found:
        return None
    job, first = look.running.job, found[0]
    lines = timeline(call, job, first.culprits[0].rank, first.focus_ns) if first.culprits and first.focus_ns else []
    cost = lost(call, job, look.diagnosis, first)
    return Details(tuple(lines), None if cost is None else _a_day(latest, cost))


def _a_day(latest: Sighting, cost: Lost) -> Cost:
    """What a day like the time since its onset would cost; the window that `cost` is about also holds healthy steps."""
    hours = latest.share_lost * cost.gpus * _HOURS_A_DAY
    if cost.usd_per_day_low is None or cost.usd_per_day_high is None or not cost.gpu_hours_per_day:
        return Cost(hours)
    scale = hours / cost.gpu_hours_per_day
    return Cost(hours, cost.usd_per_day_low * scale, cost.usd_per_day_high * scale)
