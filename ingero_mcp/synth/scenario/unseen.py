"""Families that no rule was made for, and none may be tuned on: what the analysis says of what it does not know."""

from __future__ import annotations

import numpy as np

from ingero_mcp.synth.scenario.draft import Draft, Ground


def cpu_quota(ground: Ground) -> Draft:
    """U1: the container of a rank uses up its CPU quota, and stands still until the next period of the scheduler.

    Of such pauses a step gets as many as chance has it, each up to a period long; they fall before the first launch as
    well as between launches. Nobody takes its CPU meanwhile: the CPU is idle.
    """
    plan, job = ground.plan(), ground.job
    rank = ground.rank()
    steps = np.arange(ground.onset(), job.steps)
    pauses = ground.random.poisson(2.0, len(steps))
    steps, pauses = steps[pauses > 0], pauses[pauses > 0]
    # A pause is what was left of the period when the quota was gone: uniform, so of a mean of one half.
    share = np.array([ground.random.uniform(0.0, 1.0, count).sum() for count in pauses.tolist()])
    amounts = ground.unit_ns * share / share.mean()
    early = ground.random.uniform(0.0, 1.0, len(steps))
    plan.runq_ns[steps, rank] = (amounts * early).astype(np.int64)
    plan.launch_runq_ns[steps, rank] = (amounts * (1 - early)).astype(np.int64)
    plan.symptom = "quota"
    return Draft(plan, "straggler", "cpu_contention", (rank,), None, steps)


def swapping(ground: Ground) -> Draft:
    """U2: a host is short of memory, and pages of its ranks come back from the disk: in more and more steps, some of
    its ranks, by amounts that are now small and now very large."""
    plan, job = ground.plan(), ground.job
    group = ground.host()
    first = ground.onset()
    since = (np.arange(job.steps) - first) / max(job.steps - first, 1)
    often = np.where(since >= 0, 0.3 + 0.5 * since, 0.0)
    hit = np.zeros(job.steps, bool)
    for rank in group.ranks:
        steps = np.flatnonzero(ground.random.random(job.steps) < often)
        plan.blocked_ns[steps, rank] = (ground.unit_ns * ground.random.exponential(1.0, len(steps))).astype(np.int64)
        hit[steps] = True
    plan.symptom = "swap"
    # None of the causes is it: of why, nothing is asked but that no other is said.
    return Draft(plan, "straggler", "unknown", group.ranks, group, np.flatnonzero(hit))
