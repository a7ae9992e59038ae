"""Looking at the jobs that run: which there are, how far each was seen, and what holds it up just now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ingero_mcp.analysis.episodes import Sighting
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.verdict import Diagnosis
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import diagnosed
from ingero_mcp.tools.jobs import RANKED, Job
from ingero_mcp.windows import Window

_MOST_RANKS: Final = 200_000
_LAG_NS: Final = 10_000_000_000
"""What a rank sent may come so much later than what the others sent; a rank that lags more is itself late."""

_AHEAD_NS: Final = 60_000_000_000
LEAST_BACK_NS: Final = 120_000_000_000
"""A look reaches back at least so far, so that it sees healthy steps beside bad ones."""

_MOST_BACK_NS: Final = 3_600_000_000_000
_STEPS_BACK: Final = 60
_PERIODS_BACK: Final = 5
_STALLS: Final = frozenset({"straggler", "hang", "imbalance", "network"})


@dataclass(frozen=True, slots=True)
class Running:
    """A job and how far it was seen, on the clocks of its nodes: by any rank, and by all that are not far behind."""

    cluster_id: str | None
    job_id: str | None
    newest_ns: int
    complete_ns: int

    @property
    def job(self) -> Job:
        """The job, as tools name it."""
        return Job(self.cluster_id, self.job_id, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What one look at a job found: findings that are stalls, each with what the watch remembers of it.

    `step_ns` is how long the steps of the job take, None if that cannot be said.
    """

    running: Running
    window: Window
    diagnosis: Diagnosis
    seen: tuple[tuple[Finding, Sighting], ...]
    step_ns: int | None


def running_jobs(call: Call, window: Window) -> list[Running]:
    """The jobs with collectives in the window, the one with the newest first.

    A rank whose clock is far ahead of the others' says nothing about how far the job has come.
    """
    rows = call.read(
        "SELECT cluster_id, job_id, rank, max(timestamp_ns) AS newest_ns FROM events "
        f"WHERE timestamp_ns >= {window.start_ns} AND timestamp_ns < {window.end_ns} AND source = 'nccl' "
        f"AND comm_id IS NOT NULL AND {RANKED} GROUP BY cluster_id, job_id, rank ORDER BY newest_ns DESC "
        f"LIMIT {_MOST_RANKS}",
        _MOST_RANKS,
    ).rows
    newest: dict[tuple[str | None, str | None], list[int]] = defaultdict(list)
    for cluster, job, _, newest_ns in rows:
        key = (None if cluster is None else str(cluster), None if job is None else str(job))
        newest[key].append(int(str(newest_ns)))
    found = []
    for (cluster_id, job_id), times in newest.items():
        usual_ns = sorted(times)[(len(times) - 1) // 2]
        last_ns = max(ns for ns in times if ns <= usual_ns + _AHEAD_NS)
        complete_ns = min(ns for ns in times if last_ns - _LAG_NS <= ns <= last_ns)
        found.append(Running(cluster_id, job_id, last_ns, complete_ns))
    return sorted(found, key=lambda one: -one.newest_ns)


def back_ns(step_ns: int | None, period_ns: int | None) -> int:
    """How far to look back: over enough steps, and over several periods of what recurs."""
    wanted_ns = max(_STEPS_BACK * (step_ns or 0), _PERIODS_BACK * (period_ns or 0))
    return min(max(LEAST_BACK_NS, wanted_ns), _MOST_BACK_NS)


def look_at(call: Call, running: Running, until_ns: int, back_ns: int) -> Look:
    """Look at a job once, `back_ns` back. `until_ns` is now: a silent job is looked at up to then, one that runs
    up to where all its ranks were seen."""
    is_silent = until_ns - running.newest_ns > _LAG_NS
    end_ns = max(until_ns, running.newest_ns) if is_silent else running.complete_ns
    window = Window(running.complete_ns - back_ns, end_ns + 1, "")
    diagnosis = diagnosed(call, running.job, window, None)
    seen = tuple((one, _sighting(diagnosis, one, running)) for one in diagnosis.findings if one.verdict in _STALLS)
    durations = diagnosis.steps.duration_ns
    known = durations[np.isfinite(durations)]
    return Look(running, window, diagnosis, seen, int(np.median(known)) if len(known) else None)


def _sighting(diagnosis: Diagnosis, one: Finding, running: Running) -> Sighting:
    first_ns, last_ns, share = _extent(diagnosis, one, running)
    ranks = tuple(culprit.rank for culprit in one.culprits)
    at_fault = ranks or tuple(rank for group in one.groups for rank in group.ranks)
    hosts = diagnosis.evidence.hosts
    return Sighting(
        verdict=one.verdict,
        cause=one.cause,
        confidence=one.confidence,
        ranks=ranks,
        groups=one.groups,
        nodes=tuple(dict.fromkeys(hosts[rank] for rank in at_fault if rank in hosts)),
        since_ns=one.onset_ns or first_ns,
        last_bad_ns=last_ns,
        share_lost=share,
        summary=one.summary,
        statements=one.statements,
        period_ns=_period_ns(diagnosis, one),
        lateness_ns=one.culprits[0].lateness_ns if one.culprits else None,
        slowdown=one.slowdown,
    )


def _extent(diagnosis: Diagnosis, one: Finding, running: Running) -> tuple[int, int, float]:
    """From when to when its steps were bad, and what share of the job's time it has cost since then."""
    steps = diagnosis.steps
    bad = np.flatnonzero(np.isin(steps.numbers, one.affected.steps)) if one.affected else np.zeros(0, dtype=np.int64)
    if not len(bad):
        return running.newest_ns, running.newest_ns, 1.0 if one.verdict == "hang" else 0.0
    durations = np.nan_to_num(steps.duration_ns)
    first_ns = int(steps.end_ns[bad[0]] - durations[bad[0]])
    since_ns = float(durations[bad[0] :].sum())
    share = min(one.lost_ns / since_ns, 1.0) if since_ns > 0 else 0.0
    return first_ns, int(steps.end_ns[bad[-1]]), share


def _period_ns(diagnosis: Diagnosis, one: Finding) -> int | None:
    if one.period_seconds:
        return int(one.period_seconds * 1e9)
    durations: Sequence[float] = diagnosis.steps.duration_ns[np.isfinite(diagnosis.steps.duration_ns)].tolist()
    return int(one.period_steps * float(np.mean(durations))) if one.period_steps and durations else None
