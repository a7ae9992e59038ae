"""Episodes as notices, and notices that were kept as episodes again, after a restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, get_args

from ingero_mcp.analysis.episodes import Change, Episode, Sighting
from ingero_mcp.analysis.findings import Cause, Group, GroupKind, Statement, Verdict
from ingero_mcp.analysis.severity import Severity
from ingero_mcp.notice import Cost, Fact, GroupAtFault, Notice
from ingero_mcp.windows import Window

_MOST_FACTS: Final = 8
# What share of the job's time a severity stands for at least; only that was kept.
_SHARE: Final[dict[Severity, float]] = {"HIGH": 0.2, "MEDIUM": 0.05, "LOW": 0.0}


@dataclass(frozen=True, slots=True)
class Details:
    """What is worked out only for what is told: what the culprit did before it was late, and what it costs."""

    timeline: tuple[str, ...] = ()
    cost: Cost | None = None


def notice_of(
    change: Change, cluster_id: str | None, job_id: str | None, window: Window, now_ns: int, details: Details
) -> Notice:
    """What to tell about a change of a job's episode that was judged by the window."""
    episode, latest = change.episode, change.episode.latest
    return Notice(
        what=change.what,
        id=episode.id,
        cluster_id=cluster_id,
        job_id=job_id,
        verdict=latest.verdict,
        cause=latest.cause,
        confidence=latest.confidence,
        severity=latest.severity,
        ranks=latest.ranks,
        nodes=latest.nodes,
        groups=tuple(GroupAtFault(group.kind, group.id, group.ranks) for group in latest.groups),
        start_ns=episode.since_ns,
        last_bad_ns=latest.last_bad_ns,
        detected_ns=episode.detected_ns,
        updated_ns=now_ns,
        window_start_ns=window.start_ns,
        window_end_ns=window.end_ns,
        end_ns=episode.end_ns,
        summary=latest.summary,
        timeline=details.timeline,
        facts=tuple(
            Fact(one.statement, one.value, one.unit, tuple(filter(None, one.event_ids)))
            for one in latest.statements[:_MOST_FACTS]
        ),
        cost=details.cost,
    )


def episode_of(notice: Notice) -> Episode:
    """The open episode that was told of last by the notice."""
    seen = Sighting(
        verdict=_known(notice.verdict, Verdict, "undecidable"),
        cause=_known(notice.cause, Cause, "unknown"),
        confidence=notice.confidence,
        ranks=notice.ranks,
        groups=tuple(Group(_known(group.kind, GroupKind, "job"), group.id, group.ranks) for group in notice.groups),
        nodes=notice.nodes,
        since_ns=notice.start_ns,
        last_bad_ns=notice.last_bad_ns,
        share_lost=_SHARE[_known(notice.severity, Severity, "LOW")],
        summary=notice.summary,
        statements=tuple(Statement(fact.statement, fact.value, fact.unit, fact.event_ids) for fact in notice.facts),
    )
    return Episode(notice.id, notice.start_ns, notice.detected_ns, seen, told=seen)


def _known(text: str, names: Any, otherwise: Any) -> Any:
    """The name, if this program knows it: a newer one may have kept others."""
    return text if text in get_args(names) else otherwise
