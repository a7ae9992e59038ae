"""Reading what a culprit did in its late steps and in its others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.analysis.calls import Bools, Int64s
from ingero_mcp.analysis.causes import Explained, explain
from ingero_mcp.analysis.counters import throttle_of
from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Cause, Finding
from ingero_mcp.analysis.gap import Activity, Gap, Parts, Pattern, Span
from ingero_mcp.analysis.signs import NAMES
from ingero_mcp.analysis.verdict import Diagnosis
from ingero_mcp.analysis.work import COMPUTING
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.jobs import Job
from ingero_mcp.tools.scope import as_sql
from ingero_mcp.views.view import attribute
from ingero_mcp.windows import Window

_MOST_SPANS: Final = 48  # late ones, and as many others
_FEW: Final = 4
_LONG_NS: Final = 60_000_000_000  # an event that began before a step may reach into it
_MOST_ACTIVITIES: Final = 200
_STEADY: Final = 0.9
_ONCE: Final = 0.25  # of the steps
_ALTERNATIVES: Final = 3


def with_cause(call: Call, job: Job, diagnosis: Diagnosis, finding: Finding) -> Finding:
    """The finding with the likeliest cause of a straggler, its evidence, and what else it may be."""
    if finding.verdict != "straggler" or not finding.culprits or finding.affected is None:
        return finding
    gap = _read(call, job, diagnosis, finding)
    return _told(finding, explain(gap))


def _told(finding: Finding, explained: tuple[Explained, ...]) -> Finding:
    first = explained[0]
    sure = finding.confidence
    # Who it is may be sure though why is not.
    confidence = sure if first.cause == "unknown" else sure * first.probability
    others: tuple[tuple[Cause, float], ...] = tuple(
        (one.cause, round(sure * one.probability, 2))
        for one in explained[1 : _ALTERNATIVES + 1]
        if one.probability >= 0.02
    )
    told = replace(finding, cause=first.cause, confidence=round(confidence, 2), alternatives=others)
    if first.cause == "unknown":
        return told
    *who, _ = finding.summary
    why = f"The likeliest cause ({first.cause}): {first.why}; {first.do}."
    return replace(told, statements=first.statements + finding.statements, summary=(*who, why))


def _read(call: Call, job: Job, diagnosis: Diagnosis, finding: Finding) -> Gap:
    rank = finding.culprits[0].rank
    spans = _spans(diagnosis, finding, rank)
    return Gap(
        lateness_ns=finding.culprits[0].lateness_ns or 0.0,
        parts=_parts(call, job, diagnosis.evidence, spans),
        activities=_activities(call, job, diagnosis.evidence, spans),
        pattern=_pattern(diagnosis, finding),
        throttle=throttle_of(diagnosis.evidence, rank),
    )


def _spans(diagnosis: Diagnosis, finding: Finding, rank: int) -> tuple[Span, ...]:
    """Steps of the rank in which it was late, and as many others to compare with."""
    numbers = diagnosis.steps.numbers
    late = np.isin(numbers, _late_steps(diagnosis, finding, rank))
    affected = np.isin(numbers, finding.affected.steps if finding.affected else ())
    spans = [replace(one, is_late=True) for one in _steps_of(diagnosis, rank, late)]
    usual = _steps_of(diagnosis, rank, ~affected)
    if len(usual) < _FEW:
        peers = [one for one in _peers(diagnosis, rank) if one not in {culprit.rank for culprit in finding.culprits}]
        usual = [span for peer in peers[:_FEW] for span in _steps_of(diagnosis, peer, late, _MOST_SPANS // _FEW)]
    return (*spans, *usual)


def _late_steps(diagnosis: Diagnosis, finding: Finding, rank: int) -> Int64s:
    """The affected steps in which this rank was late itself: of ranks in turn each has its own."""
    affected = np.array(finding.affected.steps if finding.affected else (), dtype=np.int64)
    comparison, lateness_ns = diagnosis.comparison, finding.culprits[0].lateness_ns
    if comparison is None or lateness_ns is None or rank not in comparison.matrix.ranks or len(finding.culprits) == 1:
        return affected
    excess = comparison.excess_ns[:, comparison.matrix.ranks == rank][:, 0]
    mine = affected[np.isin(affected, comparison.matrix.steps[excess > lateness_ns / 2])]
    return mine if len(mine) else affected


def _peers(diagnosis: Diagnosis, rank: int) -> list[int]:
    """Ranks to compare with: those that do the same work, on other hosts first."""
    evidence, roles = diagnosis.evidence, diagnosis.roles
    same = [one for one in roles.ranks(roles.of_rank.get(rank, -1)) if one != rank]
    return sorted(same, key=lambda one: evidence.hosts.get(one) == evidence.hosts.get(rank))


def _steps_of(diagnosis: Diagnosis, rank: int, wanted: Bools, most: int = _MOST_SPANS) -> list[Span]:
    calls, steps = diagnosis.evidence.calls, diagnosis.steps
    mine = np.flatnonzero((calls.rank == rank) & (steps.of_call >= 0))
    entered = np.full(len(steps), -1, dtype=np.int64)
    np.maximum.at(entered, steps.of_call[mine], calls.enter_ns[mine])
    known = np.flatnonzero((entered[:-1] > 0) & (entered[1:] > entered[:-1]) & wanted[1:]) + 1
    if len(known) > most:
        known = known[np.linspace(0, len(known) - 1, most).astype(np.int64)]
    return [Span(rank, int(entered[step - 1]), int(entered[step]), is_late=False) for step in known.tolist()]


def _listed(spans: tuple[Span, ...], evidence: Evidence) -> str:
    """The spans as a relation; `span` is the number of each, `node` where its rank runs."""
    fields = {
        "span_rank": [str(one.rank) for one in spans],
        "node": [as_sql(evidence.hosts.get(one.rank, "")) for one in spans],
        "begin_ns": [str(one.begin_ns) for one in spans],
        "until_ns": [str(one.until_ns) for one in spans],
        "is_late": [str(int(one.is_late)) for one in spans],
        "span": [str(number) for number in range(len(spans))],
    }
    columns = (f"unnest([{', '.join(values)}]) AS {name}" for name, values in fields.items())
    return f"(SELECT {', '.join(columns)}) AS spans"


def _parts(call: Call, job: Job, evidence: Evidence, spans: tuple[Span, ...]) -> Parts:
    """By how much longer the thread was on a CPU, blocked, and without a CPU in the typical late step."""
    if not spans or all(one.is_late for one in spans):
        return Parts()
    rows = call.read(
        "SELECT is_late, median(cpu) AS cpu, median(blocked) AS blocked, median(runq) AS runq FROM ("
        "SELECT span, is_late, sum(cpu_ns) AS cpu, sum(blocked_ns) AS blocked, sum(runq_ns) AS runq FROM events "
        f"JOIN {_listed(spans, evidence)} ON rank = span_rank AND timestamp_ns > begin_ns AND timestamp_ns <= until_ns "
        f"WHERE {job.where(_around(spans))} AND source = 'nccl' AND cpu_ns IS NOT NULL "
        "GROUP BY span, is_late) GROUP BY is_late ORDER BY is_late",
        2,
    ).rows
    if len(rows) < 2:
        return Parts()
    usual, late = ([float(str(value)) if value is not None else 0.0 for value in row[1:]] for row in rows)
    return Parts(*(a - b for a, b in zip(late, usual, strict=True)))


def _around(spans: tuple[Span, ...]) -> Window:
    return Window(min(one.begin_ns for one in spans) - _LONG_NS, max(one.until_ns for one in spans) + 1, "")


def _activities(call: Call, job: Job, evidence: Evidence, spans: tuple[Span, ...]) -> tuple[Activity, ...]:
    """What the ranks' processes and their hosts did in these steps, of the events that say why."""
    late = sum(one.is_late for one in spans)
    if not late:
        return ()
    names = ", ".join(map(as_sql, NAMES))
    detail = f"coalesce({attribute(semconv.SCHED_STATE)}, {attribute('io.operation')}, '')"
    done_by = f"coalesce({attribute(semconv.SCHED_NEXT_COMM)}, process, '')"
    rows: list[tuple[Any, ...]] = call.read(
        "SELECT is_late, metric_name, detail, done_by, is_own, "
        "sum(least(until_ns, end_ns) - greatest(begin_ns, start_ns)) AS total_ns, count(*) AS events, "
        "list(event_id ORDER BY end_ns - start_ns DESC)[1:4] AS ids FROM ("
        f"SELECT metric_name, rank, node_id, {detail} AS detail, {done_by} AS done_by, rank IS NOT NULL AS is_own, "
        "timestamp_ns AS start_ns, coalesce(TRY(timestamp_ns + duration_ns), timestamp_ns) AS end_ns, id AS event_id "
        f"FROM events WHERE {_of_ranks_and_hosts(job, _around(spans))} AND metric_name IN ({names})) AS did "
        f"JOIN {_listed(spans, evidence)} ON start_ns <= until_ns AND end_ns >= begin_ns "
        "AND (rank = span_rank OR (rank IS NULL AND node_id = node)) "
        f"GROUP BY ALL ORDER BY is_late DESC, total_ns DESC LIMIT {_MOST_ACTIVITIES}",
        _MOST_ACTIVITIES,
    ).rows
    return _beside(rows, late, len(spans) - late)


def _of_ranks_and_hosts(job: Job, window: Window) -> str:
    """The events of the job, and those of no rank in its cluster, which may belong to no job."""
    span = f"timestamp_ns >= {window.start_ns} AND timestamp_ns < {window.end_ns}"
    return f"{job.in_cluster} AND {span} AND (rank IS NULL OR ({job.where(None)}))"


def _beside(rows: list[tuple[Any, ...]], late: int, usual: int) -> tuple[Activity, ...]:
    """Means per step: late steps beside the others."""
    sums: dict[tuple[str, str, str, bool], dict[bool, tuple[float, int, tuple[str, ...]]]] = {}
    for is_late, name, detail, by, is_own, total_ns, count, ids in rows:
        known = tuple(str(one) for one in ids or () if one)
        sums.setdefault((name, detail, by, bool(is_own)), {})[bool(is_late)] = (float(total_ns or 0), count, known)
    nothing: tuple[float, int, tuple[str, ...]] = (0.0, 0, ())
    found = []
    for (name, detail, by, is_own), of in sums.items():
        (late_ns, late_count, ids), (usual_ns, usual_count, _) = of.get(True, nothing), of.get(False, nothing)
        found.append(
            Activity(
                name,
                detail,
                by,
                is_own,
                late_ns / late,
                usual_ns / max(usual, 1),
                late_count / late,
                usual_count / max(usual, 1),
                ids,
            )
        )
    return tuple(found)


def _pattern(diagnosis: Diagnosis, finding: Finding) -> Pattern:
    numbers, affected = diagnosis.steps.numbers, finding.affected
    steps = np.array(affected.steps if affected else (), dtype=np.int64)
    place = np.searchsorted(numbers, steps)
    since_onset = len(numbers) - int(place[0]) if len(place) else 1
    in_a_row = bool(len(place) > 1 and np.all(np.diff(place) == 1))
    ranks = {one.rank for one in finding.culprits}
    everybody = distinct(diagnosis.evidence.calls.rank)
    share = len(place) / max(since_onset, 1)
    comparison = diagnosis.comparison
    return Pattern(
        share_since_onset=1.0 if share >= _STEADY else share if share > 0.5 else 0.0,
        is_from_start=bool(len(place)) and int(place[0]) <= 1 and share >= _STEADY,
        is_in_a_row=in_a_row and len(place) <= _ONCE * len(numbers),
        recurs_in_steps=finding.period_steps is not None and len(ranks) == 1,
        recurs_in_time=finding.period_seconds is not None and share <= 0.5,
        is_whole_host=any(group.kind == "host" for group in finding.groups),
        is_in_turn=len(ranks) > 1 and not finding.groups and len(ranks) > len(everybody) / 4,
        is_rank_zero=ranks == {0},
        is_gpu=comparison is not None and comparison.matrix.measures == COMPUTING,
        is_growing=finding.grows,
    )
