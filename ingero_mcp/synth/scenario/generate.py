"""From (family, seed, severity, view) to a case; the same arguments give the same case, bit by bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from ingero_mcp.synth.scenario.block import Block, join
from ingero_mcp.synth.scenario.case import Case, Recording
from ingero_mcp.synth.scenario.conditions import Attach, Conditions, record
from ingero_mcp.synth.scenario.draft import Draft, Ground
from ingero_mcp.synth.scenario.durations import Durations, draw_durations
from ingero_mcp.synth.scenario.families import EVERY, Family
from ingero_mcp.synth.scenario.job import Job, draw_job, noisy
from ingero_mcp.synth.scenario.plan import merged, nothing
from ingero_mcp.synth.scenario.run import Run, simulate
from ingero_mcp.synth.scenario.symptoms import symptoms
from ingero_mcp.synth.scenario.truth import VIEWS, Fault, Truth, View
from ingero_mcp.synth.scenario.views import Sight
from ingero_mcp.synth.scenario.who import Sender

MS = 1_000_000
_TRIES = 12
_SHARED_CLUSTER = 0.08
"""In this share of the cases another job runs in the same cluster."""
_LEAST_EFFECT = 0.25
"""Of the planted size, per affected step."""
CLUSTER = "synthetic"


@dataclass(frozen=True, slots=True, eq=False)
class Incident:
    """A run with something planted in it; `usual` is the same run without, `random` goes on where planting ended.

    `unit_ns` is the planted size in an affected step.
    """

    family: Family
    seed: int
    unit_ns: float
    durations: Durations
    draft: Draft
    run: Run
    usual: Run
    random: np.random.Generator


def generate(family: str, seed: int, severity: float = 5.0, view: View = "probe") -> Case:
    """A case of a family (F1 to F18, and those beside them); `severity` is in multiples of the job's spread.

    Views of the same family, seed and severity show the same run. Raises KeyError for an unknown family.
    """
    incident = run_incident(family, seed, severity)
    draft, random = incident.draft, incident.random
    conditions = draft.conditions or _draw_conditions(random, incident)
    with_others = bool(random.random() < _SHARED_CLUSTER) and view != "optrace"
    if view == "optrace":
        conditions = Conditions(only=conditions.only)
    truth = _truth(incident, severity, view)
    traits = (
        *incident.run.job.traits(view),
        *draft.traits,
        *conditions.traits,
        *(("two_jobs",) if with_others else ()),
    )
    recordings = [_recording(incident.run, draft, conditions, view, seed)]
    if with_others:
        recordings.append(_other_job(seed, view))
    return Case(replace(truth, traits=traits), tuple(recordings))


def run_incident(family: str, seed: int, severity: float) -> Incident:
    """The run itself, before anybody looks at it."""
    kind = EVERY[family]
    random = np.random.default_rng([seed, crc32(family.encode())])
    job = draw_job(random, seed, kind.shapes)
    if kind.name == "F18" and random.random() < 0.4:
        job = noisy(job, random)
    durations = draw_durations(job, random)
    usual = simulate(job, durations, nothing(job.steps, job.layout.world), seed)
    ground = Ground(job, durations, random, severity)
    draft, run = _plant(kind, ground, usual, seed)
    return Incident(kind, seed, ground.unit_ns, durations, draft, run, usual, random)


def _plant(kind: Family, ground: Ground, usual: Run, seed: int) -> tuple[Draft, Run]:
    """An incident that costs time: a pipeline has room to spare, and some delays in it would change nothing."""
    for _ in range(_TRIES):
        draft = kind.plant(ground)
        run = simulate(ground.job, ground.durations, draft.plan, seed)
        lost_ns = run.length_ns - usual.length_ns
        if not kind.is_slow or lost_ns >= _LEAST_EFFECT * ground.unit_ns * len(draft.steps):
            return draft, run
    # Nobody is to be named for what costs nothing.
    return replace(draft, accepted=(draft.verdict, "healthy"), hidden_in=VIEWS, traits=(*draft.traits, "absorbed")), run


def _recording(run: Run, draft: Draft, conditions: Conditions, view: View, seed: int) -> Recording:
    sight = Sight(run, view)
    blocks = [*sight.blocks(), *symptoms(run, view, np.random.default_rng([seed, 77]))]
    if run.plan.stop is not None:
        blocks += sight.open_calls(int(run.base_ns[run.last_step]) + run.plan.stop.timeout_ns)
    calls = join(blocks)
    if view == "optrace":
        calls = _one_per_group(calls, run, draft)
    sender = Sender(run.job.layout, view, CLUSTER)
    return Recording(sender, record(calls, run, conditions, np.random.default_rng([seed, 78])))


def _one_per_group(calls: Block, run: Run, draft: Draft) -> Block:
    """An op trace has one rank of each tensor parallel group, the one that matters, and no hosts."""
    tp = run.job.layout.tp
    calls = calls.where((calls.rank >= 0) & (calls.rank % tp == _traced(draft, tp)))
    return replace(calls, host=np.zeros_like(calls.host))


def _traced(draft: Draft, tp: int) -> int:
    """Which of each tensor parallel group an op trace has."""
    return draft.culprits[0] % tp if draft.culprits else 0


def _other_job(seed: int, view: View) -> Recording:
    """A healthy job that has nothing to do with it."""
    random = np.random.default_rng([seed, 79])
    job = draw_job(random, seed + 500_000, ((1, 4, 1, 1), (2, 2, 1, 1)), steps=60)
    job = replace(job, layout=replace(job.layout, hosts=tuple(f"other-{name}" for name in job.layout.hosts)))
    run = simulate(job, draw_durations(job, random), Ground(job, draw_durations(job, random), random, 0).plan(), seed)
    return _recording(run, Draft(run.plan, "healthy", "none"), Conditions(), view, seed)


def _draw_conditions(random: np.random.Generator, incident: Incident) -> Conditions:
    """Clocks that are a little off in half of the cases, and now and then a recording that is not complete."""
    job, is_steady = incident.run.job, incident.family.is_steady
    hosts = len(job.layout.hosts)
    conditions = Conditions()
    if random.random() < 0.5 and hosts > 1:
        scale = float(np.exp(random.uniform(np.log(0.05 * MS), np.log(40 * MS))))
        conditions = replace(conditions, offset_ns=tuple(int(x) for x in random.normal(0, scale, hosts)))
    if random.random() < 0.3 and hosts > 1:
        conditions = replace(conditions, drift_ppm=tuple(float(x) for x in random.normal(0, 5, hosts)))
    drawn = random.random()
    if drawn < 0.10:
        return replace(conditions, loss=float(random.uniform(0.002, 0.02)))
    # What is seldom cannot be seen by those who seldom look.
    if drawn < 0.15 and is_steady:
        return replace(conditions, attach=_attach(random, job, incident.draft))
    if drawn < 0.20 and is_steady:
        return replace(conditions, every=int(random.choice((2, 3, 5))))
    return conditions


def _attach(random: np.random.Generator, job: Job, draft: Draft) -> Attach | None:
    others = [rank for rank in range(job.layout.world) if rank not in draft.culprits]
    if not others:
        return None
    step = job.steps // int(random.integers(4, 8))
    return Attach(int(random.choice(others)), step, bool(random.random() < 0.5))


def _truth(incident: Incident, severity: float, view: View) -> Truth:
    kind, draft, run, usual = incident.family, incident.draft, incident.run, incident.usual
    is_unseen = view in draft.unseen_in
    affected = tuple(int(step) + run.job.first_step for step in draft.steps)
    return Truth(
        family=kind.name,
        view=view,
        verdict="undecidable" if is_unseen else draft.verdict,
        cause=draft.cause,
        accepted=draft.unseen_in.get(view) or draft.accepted or (draft.verdict,),
        culprits=draft.culprits,
        group=draft.group,
        is_single=len(draft.culprits) == 1,
        is_hidden=is_unseen or view in draft.hidden_in,
        affected_steps=affected,
        onset_step=affected[0] if affected else None,
        period_steps=draft.period_steps,
        period_seconds=draft.period_seconds,
        severity=severity if kind.is_slow else 0.0,
        spread_ns=incident.durations.spread_ns,
        step_ns=int(np.median(usual.step_ns)),
        lost_ns=_lost_ns(incident) if kind.is_slow else 0,
        faults=_faults(incident, view),
        hang_ns=int(run.base_ns[run.last_step]) if draft.plan.stop else None,
    )


def _lost_ns(incident: Incident) -> int:
    """How much longer the run took than without the incident; an uneven one than with the same work dealt evenly."""
    even, run = incident.draft.even, incident.run
    usual = simulate(run.job, incident.durations, even, incident.seed) if even is not None else incident.usual
    return run.length_ns - usual.length_ns


def _faults(incident: Incident, view: View) -> tuple[Fault, ...]:
    """Each of several incidents with what the run would be shorter without it, the costliest first."""
    run, parts = incident.run, incident.draft.parts
    found = []
    for part in parts:
        rest = merged(tuple(other.plan for other in parts if other is not part))
        lost_ns = run.length_ns - simulate(run.job, incident.durations, rest, incident.seed).length_ns
        least_ns = _LEAST_EFFECT * incident.unit_ns * len(part.steps)
        is_hidden = view in part.unseen_in or view in part.hidden_in or lost_ns < least_ns
        tp = run.job.layout.tp
        if view == "optrace" and part.culprits:
            is_hidden |= all(rank % tp != _traced(incident.draft, tp) for rank in part.culprits)
        found.append(Fault(part.cause, part.verdict, part.culprits, part.group, lost_ns, is_hidden))
    return tuple(sorted(found, key=lambda fault: -fault.lost_ns))
