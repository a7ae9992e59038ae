"""`fleet.cluster.explain_stall`: which rank holds a job up, since when, and with what evidence, in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.verdict import Diagnosis, diagnose
from ingero_mcp.notice import Notice
from ingero_mcp.tools import event_history, run_analysis
from ingero_mcp.tools.answer import Finished, Range
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.caveats import clock_bound_ms, gaps, notes
from ingero_mcp.tools.evidence import read_evidence
from ingero_mcp.tools.explanation import (
    Alternative,
    CulpritGroup,
    CulpritRank,
    Explanation,
    Other,
    affected_of,
    facts_of,
    finished,
    iso_or_none,
    rounded,
    share,
)
from ingero_mcp.tools.gap import with_cause
from ingero_mcp.tools.jobs import MAX_JOBS, Job, jobs
from ingero_mcp.tools.kept_stalls import latest_stall
from ingero_mcp.tools.lost import lost
from ingero_mcp.tools.nearest import listed, nearest, quoted
from ingero_mcp.tools.plot import plot
from ingero_mcp.tools.scope import Scope, equal, explain_empty
from ingero_mcp.tools.timeline import SPAN_NS, timeline
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.windows import WINDOW_FORMS, Window, iso

NAME: Final = "fleet.cluster.explain_stall"

_MOST_NAMES: Final = 1000
_MOST_CAUSES: Final = 4  # findings of a job that are asked why
_SERIOUS: Final = ("hang", "straggler", "network", "imbalance", "undecidable", "healthy")


class ExplainStall(BaseModel):
    """Arguments of explain_stall."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: Annotated[
        str | None,
        Field(description=f"Time range: {WINDOW_FORMS}. Default: that of the watch's latest finding, else all."),
    ] = None
    cluster_id: Annotated[str | None, Field(description="Only this cluster. Default: all.")] = None
    job_id: Annotated[str | None, Field(description="Only this job. Default: the jobs with most events.")] = None
    comm_id: Annotated[
        str | None, Field(description="Only collectives of this communicator. Default: all of the job.")
    ] = None
    include_plot: Annotated[
        bool, Field(description="Add a plot in text: ranks by steps, how late each was. Default: false.")
    ] = False


def explain_stall(call: Call, given: ExplainStall) -> Finished:
    """Diagnose the jobs of the window; the worst of them is explained, the others are mentioned.

    Without a window a live server answers about what its watch found last.
    """
    latest = _latest(call, given)
    if latest is not None:
        about = {"window": latest.window, "cluster_id": latest.cluster_id, "job_id": latest.job_id}
        said = _over_window(call, given.model_copy(update=about))
        if said.verdict not in ("healthy", "undecidable"):
            return finished(said.model_copy(update={"notes": [_why_this_window(latest), *said.notes]}))
    return finished(_over_window(call, given))


def _latest(call: Call, given: ExplainStall) -> Notice | None:
    """What the watch found last, if that is what is asked for: a file has no watch, and all of it is asked about."""
    if call.clock is None or given.window is not None or given.comm_id is not None:
        return None
    return latest_stall(call, given.cluster_id, given.job_id)


def _why_this_window(latest: Notice) -> str:
    state = "goes on" if latest.end_ns is None else f"ended at {iso(latest.end_ns)}"
    return f"no window was given: this is the latest finding of the watch, which {state}; window all is everything"


def _over_window(call: Call, given: ExplainStall) -> Explanation:
    window = call.window(given.window)
    found = jobs(call, window, given.cluster_id, given.job_id, given.comm_id, MAX_JOBS + 1) if window else []
    if window is None or not found:
        return _nothing(call, given, window)
    cases = [(job, diagnosed(call, job, window, given.comm_id)) for job in found[:MAX_JOBS]]
    cases.sort(key=lambda case: (_SERIOUS.index(case[1].findings[0].verdict), -case[1].findings[0].lost_ns))
    return _explained(call, given, window, cases, is_all=len(found) <= MAX_JOBS)


def diagnosed(call: Call, job: Job, window: Window, comm_id: str | None) -> Diagnosis:
    """Who, and of the findings that count most also why."""
    diagnosis = diagnose(read_evidence(call, job, window, comm_id))
    first, rest = diagnosis.findings[:_MOST_CAUSES], diagnosis.findings[_MOST_CAUSES:]
    return replace(diagnosis, findings=(*(with_cause(call, job, diagnosis, one) for one in first), *rest))


def _explained(
    call: Call, given: ExplainStall, window: Window, cases: list[tuple[Job, Diagnosis]], *, is_all: bool
) -> Explanation:
    job, diagnosis = cases[0]
    first = diagnosis.findings[0]
    evidence = diagnosis.evidence
    others = [_other(job, one) for one in diagnosis.findings[1:]]
    others += [_other(other, case.findings[0]) for other, case in cases[1:] if case.findings[0].verdict != "healthy"]
    culprit = first.culprits[0] if first.culprits else None
    lines = timeline(call, job, culprit.rank, first.focus_ns) if culprit and first.focus_ns else []
    return Explanation(
        verdict=first.verdict,
        cause=first.cause,
        confidence=share(first.confidence),
        alternatives=[Alternative(cause=cause, confidence=share(how)) for cause, how in first.alternatives],
        culprits=_culprits(diagnosis, first),
        culprit_groups=[CulpritGroup(kind=one.kind, id=one.id, ranks=list(one.ranks)) for one in first.groups],
        onset=iso_or_none(first.onset_ns),
        onset_step=first.onset_step,
        baseline_step_ms=_ms(first.baseline_step_ns),
        slowdown=rounded(first.slowdown),
        affected_steps=affected_of(first),
        period_steps=first.period_steps,
        period_seconds=rounded(first.period_seconds),
        waiting_ranks=list(first.waiting_ranks),
        timeline=lines,
        evidence=facts_of(first),
        timing_source=evidence.timing,
        clock_bound_ms=clock_bound_ms(diagnosis),
        gaps=gaps(diagnosis),
        cost=lost(call, job, diagnosis, first),
        enable=list(first.enable),
        other_findings=others,
        next_calls=_next_calls(call, given, window, job, diagnosis),
        summary=" ".join(first.summary),
        cluster_id=job.cluster_id,
        job_id=job.job_id,
        window=Range.of(window),
        notes=notes(diagnosis, cases, is_all=is_all),
        row_count=1 + len(others),
        truncated=not is_all,
        plot=plot(diagnosis) if given.include_plot else None,
    )


def _culprits(diagnosis: Diagnosis, first: Finding) -> list[CulpritRank]:
    places = diagnosis.evidence.places
    return [
        CulpritRank(
            rank=one.rank,
            node_id=places[one.rank].node_id if one.rank in places else None,
            pid=places[one.rank].pid if one.rank in places else None,
            lateness_ms=_ms(one.lateness_ns),
            share_of_steps=rounded(one.share_of_steps),
        )
        for one in first.culprits
    ]


def _other(job: Job, one: Finding) -> Other:
    return Other(
        job_id=job.job_id,
        verdict=one.verdict,
        cause=one.cause,
        confidence=share(one.confidence),
        culprits=[culprit.rank for culprit in one.culprits],
        culprit_groups=[CulpritGroup(kind=group.kind, id=group.id, ranks=list(group.ranks)) for group in one.groups],
        affected_steps=len(one.affected.steps) if one.affected else 0,
        summary=one.summary[0] if one.summary else one.verdict,
    )


def _ms(ns: float | None) -> float | None:
    return None if ns is None else rounded(ns / 1e6)


def _next_calls(call: Call, given: ExplainStall, window: Window, job: Job, diagnosis: Diagnosis) -> list[str]:
    first, evidence = diagnosis.findings[0], diagnosis.evidence
    calls = []
    if first.culprits:
        rank = first.culprits[0].rank
        at_ns = first.focus_ns or first.onset_ns
        span = Window(at_ns - SPAN_NS, at_ns + SPAN_NS, "").absolute if at_ns and at_ns > SPAN_NS else given.window
        of_rank: dict[str, object] = {
            "rank": rank,
            "cluster_id": given.cluster_id,
            "node_id": evidence.hosts.get(rank),
            "window": span,
        }
        calls.append(call.next_call(event_history.NAME, of_rank))
    terms = [equal("job_id", job.job_id)] if job.job_id else []
    terms += [equal("cluster_id", given.cluster_id)] if given.cluster_id else []
    terms += [equal("comm_id", given.comm_id)] if given.comm_id else []
    terms += [f"enter_ns >= {window.start_ns}", f"enter_ns < {window.end_ns}"] if given.window else []
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    sql = (
        "SELECT rank, count(*) AS calls, median(cpu_ns + blocked_ns + runq_ns) / 1e6 AS own_ms, "
        "median(lateness_ns) / 1e6 AS lateness_ms, max(clock_bound_ns) / 1e6 AS clock_bound_ms "
        f"FROM collectives{where} GROUP BY rank ORDER BY rank"
    )
    return [*calls, call.next_call(run_analysis.NAME, {"sql": sql})]


def _nothing(call: Call, given: ExplainStall, window: Window | None) -> Explanation:
    why = _why_nothing(call, given, window)
    reason = why[0]
    return Explanation(
        verdict="undecidable",
        cause="unknown",
        confidence=0.0,
        alternatives=[],
        culprits=[],
        culprit_groups=[],
        onset=None,
        onset_step=None,
        baseline_step_ms=None,
        slowdown=None,
        affected_steps=None,
        period_steps=None,
        period_seconds=None,
        waiting_ranks=[],
        timeline=[],
        evidence=[],
        timing_source="none",
        clock_bound_ms=None,
        gaps=[],
        cost=None,
        enable=["collectives with ranks: the probe (ingero trace), or an import of traces or recorder dumps"],
        other_findings=[],
        next_calls=[call.next_call(run_analysis.NAME, {"sql": "SELECT * FROM clusters"})],
        summary=f"There is nothing to judge a stall by: {reason}. "
        "A stall shows in the collectives of several ranks. Record them, or name another window.",
        cluster_id=given.cluster_id,
        job_id=given.job_id,
        window=Range.of(window) if window else None,
        notes=list(why),
        row_count=0,
        truncated=False,
    )


def _why_nothing(call: Call, given: ExplainStall, window: Window | None) -> tuple[str, ...]:
    """Why there is nothing to judge by: a name that does not exist, an empty window, or events of other kinds."""
    scope = Scope(window=window, cluster_id=given.cluster_id)
    if window is None or not call.read(f"SELECT 1 FROM events WHERE {scope.where()} LIMIT 1").rows:
        return explain_empty(call, scope)
    asked = [("job", given.job_id, "job_id"), ("communicator", given.comm_id, "comm_id")]
    hints = []
    for what, name, column in asked:
        known = _names(call, column, scope) if name is not None else []
        if name is not None and name not in known:
            near = nearest(name, known)
            hint = f"nearest: {listed(near)}; " if near else ""
            hints.append(f"there is no {what} {quoted(name)} in it; {hint}existing: {listed(known) or 'none'}")
    if not hints and (given.job_id or given.comm_id):
        hints = ["no collective in it has all of these together"]
    return tuple(hints) or ("no event in it belongs to a collective, a recorder's dump or recorded computing",)


def _names(call: Call, column: str, scope: Scope) -> list[str]:
    """The names in a column of the events in the scope, those with most events first."""
    rows = call.read(
        f"SELECT {column}, count(*) AS events FROM events WHERE {scope.where()} AND {column} IS NOT NULL "
        f"GROUP BY {column} ORDER BY events DESC, {column} LIMIT {_MOST_NAMES}",
        _MOST_NAMES,
    ).rows
    return [str(name) for name, _ in rows]


TOOL: Final = FleetTool(
    name=NAME,
    title="Explain a stall",
    description=(
        "Why is the job slow or stuck: one call answers which rank or group of ranks holds the others up, on which "
        "host, since when, in which steps, who waits, and how sure that is. Start here. verdict: straggler, hang, "
        "imbalance, network, healthy or undecidable (then `enable` says what to record). Compares each rank's own work "
        "with that of ranks of the same role, so that who is late because of waiting for another is not blamed; never "
        "compares clocks of hosts beyond their error bar. Evidence comes with ids of events (node:number); next_calls "
        f"go on from there. window: {WINDOW_FORMS}; default: the latest finding of the server's watch, else all. Two "
        "incidents in a window are two findings: see other_findings."
    ),
    arguments=ExplainStall,
    answer=explain_stall,
    table=Explanation,
    example={
        "window": "last 15m",
        "cluster_id": "prod",
        "job_id": "llm-pretrain-7",
        "comm_id": "5a17c0de00b1a5ed",
        "include_plot": True,
    },
)
