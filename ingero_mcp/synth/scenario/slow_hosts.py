"""Families in which a host makes its ranks late: F1 to F4, F8, F9, F14, F15."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ingero_mcp.synth.scenario.draft import Draft, Ground
from ingero_mcp.synth.scenario.plan import Plan
from ingero_mcp.synth.scenario.truth import VIEWS, Verdict

Int64s = npt.NDArray[np.int64]


def data_loader(ground: Ground) -> Draft:
    """F1: every n-th batch is not there yet, and the main thread sleeps until it is."""
    plan = ground.plan()
    period = ground.period()
    steps = ground.recurring(period)
    ranks, group = ground.victims(0.25)
    for rank in ranks:
        plan.blocked_ns[steps, rank] = ground.amounts(steps)
    plan.symptom = "data_wait"
    return Draft(plan, "straggler", "data_loader", ranks, group, steps, period_steps=period)


def cpu_contention(ground: Ground) -> Draft:
    """F2: others take the CPU, by varying amounts, in most steps; before the first launch and between launches."""
    plan = ground.plan()
    first = ground.onset()
    steps = np.arange(first, ground.job.steps)
    steps = steps[ground.random.random(len(steps)) < ground.random.uniform(0.6, 1.0)]
    ranks, group = ground.victims(0.4)
    for rank in ranks:
        amounts = ground.amounts(steps, 0.3)
        plan.runq_ns[steps, rank] = amounts * 7 // 10
        plan.launch_runq_ns[steps, rank] = amounts * 3 // 10
    plan.symptom = "contention"
    return Draft(plan, "straggler", "cpu_contention", ranks, group, steps)


def gc_pause(ground: Ground) -> Draft:
    """F3: Python's collector runs every n-th step: on one rank only, or on all of them, each in its own phase."""
    plan, layout = ground.plan(), ground.job.layout
    period = ground.period(10, 30)
    growth = ground.random.uniform(0.0, 0.5)
    rotates = bool(ground.random.random() < 0.6)
    ranks = tuple(range(layout.world)) if rotates else (ground.rank(),)
    hit = np.zeros(ground.job.steps, bool)
    for rank in ranks:
        steps = np.arange(1 + int(ground.random.integers(period)), ground.job.steps, period)
        grown = 1 + growth * steps / ground.job.steps
        plan.cpu_ns[steps, rank] = (ground.amounts(steps) * grown).astype(np.int64)
        hit[steps] = True
    plan.symptom = "gc"
    return Draft(
        plan,
        "straggler",
        "gc_pause",
        ranks,
        None,
        np.flatnonzero(hit),
        period_steps=None if rotates else period,
        accepted=("straggler", "imbalance") if rotates else (),
        traits=("rotating",) if rotates else (),
    )


def allocator_retry(ground: Ground) -> Draft:
    """F4: near the memory limit the allocator gives its cache back and asks again, every k steps, longer each time."""
    plan = ground.plan()
    period = ground.period(6, 16)
    steps = ground.recurring(period)
    rank = ground.rank()
    grown = np.linspace(0.8, 1.3, len(steps))
    plan.cpu_ns[steps, rank] = (ground.amounts(steps) * grown).astype(np.int64)
    plan.symptom = "alloc"
    return Draft(plan, "straggler", "allocator_retry", (rank,), None, steps, period_steps=period)


def pcie_numa(ground: Ground) -> Draft:
    """F8: one host copies and launches slower by a constant, from the first step on.

    If the host has whole stages of a pipeline, there are neither peers nor a past that could tell it from their work.
    """
    plan = ground.plan()
    steps = np.arange(ground.job.steps)
    group = ground.host()
    for rank in group.ranks:
        plan.cpu_ns[:, rank] = ground.amounts(steps, 0.05)
    draft = Draft(plan, "straggler", "pcie_numa", group.ranks, group, steps)
    if not ground.job.layout.has_peers(group.ranks):
        may_be: tuple[Verdict, ...] = ("straggler", "imbalance", "undecidable", "healthy")
        draft = replace(draft, accepted=may_be, hidden_in=VIEWS, traits=("no_peers",))
    return draft


def checkpoint(ground: Ground) -> Draft:
    """F9: rank 0 writes a checkpoint at every K-th step."""
    plan = ground.plan()
    period = ground.period(12, 30)
    steps = np.arange(period, ground.job.steps, period)
    plan.blocked_ns[steps, 0] = ground.amounts(steps)
    plan.symptom = "checkpoint"
    return Draft(plan, "straggler", "checkpoint_io", (0,), None, steps, period_steps=period)


def compile_warmup(ground: Ground) -> Draft:
    """F14: one rank compiles for some steps in a row: at the start, or when a new shape comes."""
    plan = ground.plan()
    rank = ground.rank()
    at_start = bool(ground.random.random() < 0.4)
    first = 1 if at_start else int(ground.random.integers(ground.job.steps // 4, ground.job.steps // 2))
    steps = np.arange(first, first + int(ground.random.integers(6, 12)))
    plan.blocked_ns[steps, rank] = ground.amounts(steps, 0.3)
    plan.symptom = "compile"
    return Draft(plan, "straggler", "compile_warmup", (rank,), None, steps)


def host_jitter(ground: Ground) -> Draft:
    """F15: something runs on one host every so many seconds, and all its ranks are late in that step."""
    plan, job = ground.plan(), ground.job
    group = ground.host()
    # About a step; the delays themselves move the later ticks, so they are counted.
    step_s = job.compute_ns * (1.15 if job.layout.pp == 1 else 1 + 1 / job.layout.pp + 0.3) / 1e9
    period_s = step_s * float(ground.random.uniform(6, 14))
    steps, now_s, tick_s = [], 0.0, period_s * float(ground.random.uniform(0.2, 1.0))
    for step in range(job.steps):
        now_s += step_s
        if now_s >= tick_s and step > 0:
            steps.append(step)
            now_s += ground.unit_ns / 1e9
            tick_s += period_s
    found = np.array(steps, np.int64)
    _all_of(plan, ground, group.ranks, found)
    plan.symptom = "host_jitter"
    return Draft(plan, "straggler", "host_jitter", group.ranks, group, found, period_seconds=period_s)


def _all_of(plan: Plan, ground: Ground, ranks: tuple[int, ...], steps: Int64s) -> None:
    for rank in ranks:
        plan.runq_ns[steps, rank] = ground.amounts(steps, 0.15)
