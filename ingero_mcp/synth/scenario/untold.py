"""Cases that nobody can tell from what is recorded: the right answer says so, or that nothing shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingero_mcp.synth.scenario.conditions import Conditions
from ingero_mcp.synth.scenario.draft import Draft, Ground
from ingero_mcp.synth.scenario.plan import Plan
from ingero_mcp.synth.scenario.truth import VIEWS

_BELOW = 0.15  # of the spread
MS = 1_000_000


def one_rank(ground: Ground) -> Draft:
    """N1: a rank is slow from the first step on, and one rank was recorded: it or another."""
    plan, rank = ground.plan(), ground.rank()
    _slow(ground, plan, rank)
    seen = rank if ground.random.random() < 0.5 else ground.rank()
    return _untold(ground, plan, rank, Conditions(only=(seen,)))


def two_ranks(ground: Ground) -> Draft:
    """N2: of two ranks one works longer in all steps; that it is slow or that it has more to do looks the same."""
    plan, rank = ground.plan(), ground.rank()
    _slow(ground, plan, rank)
    return _untold(ground, plan, rank, Conditions())


def enqueued_only(ground: Ground) -> Draft:
    """N3: a rank is late, but only when calls were enqueued was recorded, by clocks that are far apart."""
    plan, rank, job = ground.plan(), ground.rank(), ground.job
    steps = np.arange(1, job.steps)
    plan.blocked_ns[steps, rank] = ground.amounts(steps)
    hosts = len(job.layout.hosts)
    offset = tuple(int(ns) for ns in ground.random.normal(0, 500 * MS, hosts))
    return _untold(ground, plan, rank, Conditions(offset_ns=offset, enqueues_only=True))


def below_noise(ground: Ground) -> Draft:
    """N4: a rank is late every n-th step by a small part of what its steps differ anyway."""
    small = replace(ground, severity=_BELOW)
    plan, rank = small.plan(), small.rank()
    steps = small.recurring(small.period())
    plan.blocked_ns[steps, rank] = small.amounts(steps)
    return replace(_untold(small, plan, rank, Conditions()), steps=steps)


def _slow(ground: Ground, plan: Plan, rank: int) -> None:
    """Slow for everything, from the first step on: half of it on the GPU, half on the host."""
    steps = np.arange(ground.job.steps)
    plan.gpu_factor[:, rank] += ground.unit_ns / 2 / ground.job.compute_ns
    plan.cpu_ns[:, rank] = ground.amounts(steps, 0.05) // 2


def _untold(ground: Ground, plan: Plan, rank: int, conditions: Conditions) -> Draft:
    draft = Draft(plan, "undecidable", "unknown", (rank,), None, np.arange(ground.job.steps), conditions=conditions)
    return replace(draft, accepted=("undecidable", "healthy"), hidden_in=VIEWS)
