"""Families in which nobody is at fault: F17 and F18."""

from __future__ import annotations

import numpy as np

from ingero_mcp.synth.scenario.conditions import Conditions
from ingero_mcp.synth.scenario.draft import Draft, Ground

MS = 1_000_000


def clock_skew(ground: Ground) -> Draft:
    """F17: the clock of one host is wrong; everything it says is shifted, and no rank is late."""
    hosts = len(ground.job.layout.hosts)
    host = int(ground.random.integers(hosts))
    offset, drift = [0] * hosts, [0.0] * hosts
    sign = 1 if ground.random.random() < 0.5 else -1
    offset[host] = sign * int(np.exp(ground.random.uniform(np.log(5 * MS), np.log(2000 * MS))))
    if ground.random.random() < 0.5:
        drift[host] = float(ground.random.uniform(-30, 30))
    step = None
    if ground.random.random() < 0.25:
        at = int(ground.random.integers(ground.job.steps // 3, ground.job.steps * 2 // 3))
        step = (host, at, int(ground.random.uniform(-50, 50) * MS))
    return Draft(
        ground.plan(), "healthy", "clock_skew", conditions=Conditions(tuple(offset), tuple(drift), clock_step=step)
    )


def healthy(ground: Ground) -> Draft:
    """F18: nothing persists. In some runs a few steps have a hiccup, each on some rank, and never again."""
    plan, job = ground.plan(), ground.job
    if ground.random.random() < 0.7:
        return Draft(plan, "healthy", "none")
    for _ in range(int(ground.random.integers(1, 4))):
        step, rank = int(ground.random.integers(1, job.steps)), ground.rank()
        plan.blocked_ns[step, rank] = int(ground.durations.spread_ns * ground.random.uniform(5, 60))
    return Draft(plan, "healthy", "none", traits=("hiccup",))
