"""Two recordings of a job side by side: what changed, per rank and stage, and what each is diagnosed with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ingero_mcp.analysis.difference import Change, Difference, difference
from ingero_mcp.analysis.findings import Cause, Verdict
from ingero_mcp.analysis.verdict import Diagnosis
from ingero_mcp.analysis.words import capital, duration_text, ranks_text, who
from ingero_mcp.cells import escaped
from ingero_mcp.errors import QueryError
from ingero_mcp.tools.answer import Finished
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import diagnosed
from ingero_mcp.tools.explanation import rounded
from ingero_mcp.tools.jobs import Job, jobs
from ingero_mcp.windows import WINDOW_FORMS

_MOST: Final = 512
_SAID: Final = 4  # ranks in a sentence
_SHOWN: Final = 8  # ranks in the text
_SAME: Final = 0.005  # of a step


class Asked(BaseModel):
    """What is compared: windows and which job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    before: Annotated[str | None, Field(description=f"Time range: {WINDOW_FORMS}. Default: all.")] = None
    after: Annotated[str | None, Field(description=f"Time range: {WINDOW_FORMS}. Default: all.")] = None
    cluster_id: str | None = None
    job_id: str | None = None
    comm_id: str | None = None


class Side(BaseModel):
    """One of the two: what it was, and what it is diagnosed with."""

    window: str
    job_id: str | None
    steps: int
    mean_step_ms: float | None
    verdict: Verdict
    cause: Cause
    culprits: list[int]
    summary: str


class Changed(BaseModel):
    """A rank or a stage: its mean own work in a step."""

    id: int
    before_ms: float | None
    after_ms: float | None
    change_ms: float | None
    beyond_chance: bool


class Compared(BaseModel):
    """The whole answer."""

    before: Side
    after: Side
    measures: str
    ranks: list[Changed]
    stages: list[Changed]
    missing_ranks: list[int]
    added_ranks: list[int]
    summary: str


def compared(before: Call, after: Call, asked: Asked) -> Finished:
    """Diagnose both and say what changed; QueryError where one of them has no job."""
    one = _half(before, asked.before, asked, "first")
    other = _half(after, asked.after, asked, "second")
    found = difference(one.diagnosis, other.diagnosis)
    answer = Compared(
        before=one.said(found.before_step_ns),
        after=other.said(found.after_step_ns),
        measures=found.measures,
        ranks=[_changed(change) for change in found.ranks[:_MOST]],
        stages=[_changed(change) for change in found.stages[:_MOST]],
        missing_ranks=list(found.missing[:_MOST]),
        added_ranks=list(found.added[:_MOST]),
        summary=_summary(found),
    )
    return Finished(answer.model_dump(mode="json"), _text(answer))


@dataclass(frozen=True, slots=True, eq=False)
class _Half:
    """One of the two."""

    job: Job
    diagnosis: Diagnosis
    window: str

    def said(self, step_ns: float) -> Side:
        first = self.diagnosis.findings[0]
        return Side(
            window=self.window,
            job_id=self.job.job_id,
            steps=len(self.diagnosis.steps),
            mean_step_ms=_ms(step_ns),
            verdict=first.verdict,
            cause=first.cause,
            culprits=[one.rank for one in first.culprits],
            summary=" ".join(first.summary),
        )


def _half(call: Call, window: str | None, asked: Asked, which: str) -> _Half:
    resolved = call.window(window)
    found = jobs(call, resolved, asked.cluster_id, asked.job_id, asked.comm_id, 1) if resolved else []
    if resolved is None or not found:
        raise QueryError(f"the {which} of the two has no job with collectives or computing to compare")
    return _Half(found[0], diagnosed(call, found[0], resolved, asked.comm_id), resolved.absolute)


def _changed(change: Change) -> Changed:
    return Changed(
        id=change.name,
        before_ms=_ms(change.before_ns),
        after_ms=_ms(change.after_ns),
        change_ms=_ms(change.change_ns),
        beyond_chance=change.is_real,
    )


def _ms(ns: float) -> float | None:
    return rounded(ns / 1e6)


def _summary(found: Difference) -> str:
    """Three plain sentences: the steps, who changed, who did not."""
    return " ".join((_of_steps(found), _of_ranks(found), _of_others(found)))


def _of_steps(found: Difference) -> str:
    before, after = found.before_step_ns, found.after_step_ns
    if not (math.isfinite(before) and math.isfinite(after)) or before <= 0:
        return "How long steps took is not known of both."
    change = after / before - 1
    same = abs(change) < _SAME
    return (
        f"A step takes as long as before ({duration_text(after)})."
        if same
        else f"A step takes {duration_text(after)} in the mean, before {duration_text(before)} ({change:+.1%})."
    )


def _of_ranks(found: Difference) -> str:
    real = [change for change in found.ranks if change.is_real]
    if not found.measures:
        return "Own work was measured in different ways, so that ranks cannot be compared."
    if not real:
        return "No rank's own work changed beyond chance."
    if len(real) > len(found.ranks) / 2 and len(real) > _SAID:
        typical = float(np.median([change.change_ns for change in real]))
        return f"The own work of {len(real)} of {len(found.ranks)} ranks changed, by {_signed(typical)} typically."
    named = ", ".join(f"rank {change.name} by {_signed(change.change_ns)}" for change in real[:_SAID])
    more = f" and {len(real) - _SAID} more" if len(real) > _SAID else ""
    return f"Own work changed: {named}{more}."


def _of_others(found: Difference) -> str:
    gone = [f"{who(found.missing)} not there any more"] if found.missing else []
    new = [f"{who(found.added)} new"] if found.added else []
    if gone or new:
        return f"{capital('; '.join(gone + new))}."
    still = [abs(change.change_ns) for change in found.ranks if not change.is_real]
    if not still:
        return "The same ranks are there."
    return f"The other {len(still)} ranks changed by {duration_text(max(still))} at most."


def _signed(ns: float) -> str:
    return f"{'+' if ns >= 0 else '-'}{duration_text(abs(ns))}"


def _text(answer: Compared) -> str:
    lines = [answer.summary]
    for name, side in (("before", answer.before), ("after", answer.after)):
        culprits = f", ranks {ranks_text(side.culprits)}" if side.culprits else ""
        step = f", step {side.mean_step_ms:g} ms" if side.mean_step_ms is not None else ""
        lines.append(f"{name}: {side.verdict}, {side.cause}{culprits}; {side.steps} steps{step}; {side.window}")
    for kind, changes in (("rank", answer.ranks), ("stage", answer.stages)):
        lines += [
            f"{kind} {one.id}: {one.before_ms:g} ms -> {one.after_ms:g} ms"
            + ("" if one.beyond_chance else " (within chance)")
            for one in changes[:_SHOWN]
            if one.before_ms is not None and one.after_ms is not None
        ]
    lines += [f"compared: {answer.measures}"] if answer.measures else []
    return "\n".join(map(escaped, lines))
