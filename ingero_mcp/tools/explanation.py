"""The answer of explain_stall: its fields, and the same facts as a short text."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

from ingero_mcp.analysis.findings import MOST_LISTED_STEPS, Cause, Finding, GroupKind, Verdict
from ingero_mcp.analysis.words import who
from ingero_mcp.cells import MAX_EXACT, escaped
from ingero_mcp.tools.answer import MAX_BYTES, Finished, Range
from ingero_mcp.windows import iso

_MOST_TEXT: Final = 1900
_MOST_LINE: Final = 600
_MOST_IDS: Final = 4
_MOST_CULPRITS: Final = 4  # with a line each
_MOST_LISTED: Final = (4096, 512, 128, 32, 8)  # tried in turn until the answer fits
_LONGEST: Final = 4096


class Alternative(BaseModel):
    """Another explanation."""

    cause: Cause
    confidence: float


class CulpritRank(BaseModel):
    """A rank at fault."""

    rank: int
    node_id: str | None = None
    pid: int | None = None
    lateness_ms: float | None = None
    share_of_steps: float | None = None


class CulpritGroup(BaseModel):
    """Ranks at fault together."""

    kind: GroupKind
    id: str
    ranks: list[int]


class AffectedSteps(BaseModel):
    """In which steps it happened; `list` holds the first 200."""

    count: int
    total: int
    first: int | None = None
    last: int | None = None
    list: list[int]


class Fact(BaseModel):
    """One fact with its number and the events that show it."""

    statement: str
    value: float | None = None
    unit: str
    event_ids: list[str]


class Lost(BaseModel):
    """What it cost in this window, and would in a day of the same; how that was worked out."""

    gpu_hours: float
    is_upper_bound: bool
    share_of_time: float
    gpus: int
    how: str
    gpu_hours_per_day: float
    usd_per_day_low: float | None = None
    usd_per_day_high: float | None = None
    rate: str | None = None


class Other(BaseModel):
    """A further finding, in short."""

    job_id: str | None = None
    verdict: Verdict
    cause: Cause
    confidence: float
    culprits: list[int]
    culprit_groups: list[CulpritGroup]
    affected_steps: int
    summary: str


class Explanation(BaseModel):
    """The structured content of explain_stall."""

    verdict: Verdict
    cause: Cause
    confidence: float
    alternatives: list[Alternative]
    culprits: list[CulpritRank]
    culprit_groups: list[CulpritGroup]
    onset: Annotated[str | None, Field(description="ISO 8601 on the culprit's clock")] = None
    onset_step: int | None = None
    baseline_step_ms: float | None = None
    slowdown: float | None = None
    affected_steps: AffectedSteps | None = None
    period_steps: int | None = None
    period_seconds: float | None = None
    waiting_ranks: list[int]
    timeline: Annotated[list[str], Field(description="what the first culprit did in the 500 ms before it was late")]
    evidence: list[Fact]
    timing_source: str
    clock_bound_ms: Annotated[
        float | None, Field(description="error bar of times across hosts; absent: hosts cannot be compared")
    ] = None
    gaps: list[str]
    cost: Lost | None = None
    enable: Annotated[list[str], Field(description="what to record to be able to tell more")]
    other_findings: list[Other]
    next_calls: list[str]
    summary: Annotated[str, Field(description="three plain sentences")]
    cluster_id: str | None = None
    job_id: str | None = None
    window: Range | None = None
    notes: list[str]
    row_count: Annotated[int, Field(description="findings")]
    truncated: bool
    plot: list[str] | None = None


def affected_of(one: Finding) -> AffectedSteps | None:
    """The steps of a finding."""
    if one.affected is None:
        return None
    steps = one.affected.steps
    return AffectedSteps(
        count=len(steps),
        total=one.affected.total,
        first=steps[0] if steps else None,
        last=steps[-1] if steps else None,
        list=list(steps[:MOST_LISTED_STEPS]),
    )


def facts_of(one: Finding) -> list[Fact]:
    """The statements of a finding."""
    return [
        Fact(
            statement=statement.statement,
            value=rounded(statement.value),
            unit=statement.unit,
            event_ids=[event_id for event_id in statement.event_ids if event_id],
        )
        for statement in one.statements
    ]


def rounded(value: float | None) -> float | None:
    """Four digits are more than any measured number deserves; what is not finite is not known. Counts stay whole."""
    if value is None or not math.isfinite(value) or abs(value) > MAX_EXACT:
        return None
    return float(value) if float(value).is_integer() else float(f"{value:.4g}")


def share(value: float) -> float:
    """A confidence or another number from 0 to 1, with two digits."""
    return round(min(max(value, 0.0), 1.0), 2) if math.isfinite(value) else 0.0


def finished(explanation: Explanation) -> Finished:
    """Both channels, at most MAX_BYTES together; what is not known is absent, what had to be cut is said in a note."""
    whole = _exact(explanation.model_dump(mode="json", exclude_none=True))
    said = Finished(whole, text_of(explanation))
    for most in _MOST_LISTED:
        if said.size <= MAX_BYTES:
            break
        cut = {name: _shortened(value, most) for name, value in whole.items()}
        note = f"lists are cut after {most} and texts after {_LONGEST // 4} characters: the answer would be too large"
        said = Finished(cut | {"notes": [*cut["notes"][:most], note]}, said.text)
    return said


def _exact(value: Any) -> Any:
    """The same without integers that a client whose numbers are doubles would change."""
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items() if not _is_beyond(item)}
    if isinstance(value, list):
        return [_exact(item) for item in value if not _is_beyond(item)]
    return value


def _is_beyond(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > MAX_EXACT


def _shortened(value: Any, most: int) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(item, most) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item, most) for item in value[:most]]
    return value[: _LONGEST // 4] if isinstance(value, str) else value


def complete(structured: dict[str, Any]) -> dict[str, Any]:
    """The structured content with every field, null where it is not known: for scripts."""
    return Explanation.model_validate(structured).model_dump(mode="json")


def text_of(said: Explanation) -> str:
    """The facts as text, under 2 kB: what does not fit is left to the structured content."""
    facts = [
        f"verdict: {said.verdict}, cause: {said.cause}, confidence {said.confidence:.2f}",
        said.summary,
        *_who(said),
        *_when(said),
        *_cost(said),
        *(_fact(fact) for fact in said.evidence[:2]),
    ]
    context = [
        *(f"also: {other.summary}" for other in said.other_findings[:3]),
        *(f"enable: {what}" for what in said.enable[:2]),
        *(f"gap: {gap}" for gap in said.gaps[:2]),
        *(f"note: {note}" for note in said.notes[:2]),
        f"timing: {said.timing_source}, clock bound: {_bound(said)}",
        *([f"window: {said.window.start} to {said.window.end}"] if said.window else []),
        *([f"job: {said.job_id}"] if said.job_id else []),
    ]
    # The lines of the timeline are escaped where they are made.
    timeline = [f"timeline: {line}" for line in said.timeline[-4:]]
    more = [_fact(fact) for fact in said.evidence[2:5]]
    tail = [f"next: {call}" for call in said.next_calls[:2]]
    return _fitted([*map(escaped, facts), *timeline, *map(escaped, more + context)], tail) + _plot(said)


def _fitted(lines: list[str], tail: list[str]) -> str:
    """The lines that fit, and what is to be done next; the least important come last and go first."""
    shown = [line if len(line) <= _MOST_LINE else f"{line[:_MOST_LINE]} ..." for line in lines]
    while tail and _bytes(tail) > _MOST_TEXT // 2:
        tail = tail[1:]
    room = _MOST_TEXT - _bytes(tail)
    kept: list[str] = []
    for line in shown:
        if _bytes([line]) <= room:
            kept.append(line)
            room -= _bytes([line])
    return "\n".join([*kept, *tail])


def _bytes(lines: list[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _plot(said: Explanation) -> str:
    return "\n" + "\n".join(said.plot) if said.plot else ""


def _who(said: Explanation) -> list[str]:
    lines = []
    for culprit in said.culprits if len(said.culprits) <= _MOST_CULPRITS else ():
        where = f" on {culprit.node_id}" if culprit.node_id and culprit.node_id != "unknown" else ""
        pid = f" pid {culprit.pid}" if culprit.pid is not None else ""
        late = f", {culprit.lateness_ms:g} ms late" if culprit.lateness_ms is not None else ""
        share = f" in {culprit.share_of_steps:.0%} of steps" if culprit.share_of_steps is not None else ""
        lines.append(f"culprit: rank {culprit.rank}{where}{pid}{late}{share}")
    if len(said.culprits) > _MOST_CULPRITS:
        lines.append(f"culprits: {who(culprit.rank for culprit in said.culprits)}")
    lines += [f"{group.kind} {group.id}: {who(group.ranks)}" for group in said.culprit_groups[:3]]
    lines += [f"waiting: {who(said.waiting_ranks)}"] if said.waiting_ranks else []
    return lines


def _when(said: Explanation) -> list[str]:
    parts = []
    if said.affected_steps is not None:
        parts.append(f"{said.affected_steps.count} of {said.affected_steps.total} steps")
    parts += [f"every {said.period_steps} steps"] if said.period_steps else []
    parts += [f"every {said.period_seconds:g} s"] if said.period_seconds else []
    parts += [f"onset {said.onset}"] if said.onset else []
    parts += [f"usual step {said.baseline_step_ms:g} ms"] if said.baseline_step_ms is not None else []
    parts += [f"slowdown {said.slowdown:g}x"] if said.slowdown is not None else []
    return [f"steps: {', '.join(parts)}"] if parts else []


def _cost(said: Explanation) -> list[str]:
    if said.cost is None:
        return []
    cost = said.cost
    most = "at most " if cost.is_upper_bound else ""
    line = f"cost: {most}{cost.share_of_time:.1%} of the time of {cost.gpus} GPUs, {most}{cost.gpu_hours:.3g} GPU-hours"
    line += f"; {cost.gpu_hours_per_day:.3g} GPU-hours a day at this rate"
    if cost.usd_per_day_low is not None:
        line += f", {cost.usd_per_day_low:.3g} to {cost.usd_per_day_high:.3g} USD ({cost.rate})"
    return [line]


def _fact(fact: Fact) -> str:
    ids = f" [{', '.join(fact.event_ids[:_MOST_IDS])}]" if fact.event_ids else ""
    return f"evidence: {fact.statement}{ids}"


def _bound(said: Explanation) -> str:
    return "hosts cannot be compared" if said.clock_bound_ms is None else f"{said.clock_bound_ms:g} ms"


def iso_or_none(time_ns: int | None) -> str | None:
    """A time as ISO 8601, None if there is none or it cannot be one."""
    return iso(time_ns) if time_ns is not None and time_ns > 0 else None
