"""Two incidents in one run: what is wrong on one rank must not hide what is wrong on another, or on a link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ingero_mcp.synth.scenario import slow_gpus, slow_hosts
from ingero_mcp.synth.scenario.draft import Draft, Ground
from ingero_mcp.synth.scenario.plan import merged
from ingero_mcp.synth.scenario.truth import VIEWS, Verdict

Plant = Callable[[Ground], Draft]


def steady_and_recurring(ground: Ground) -> Draft:
    """M1: a rank without a CPU in most steps, and one that waits for its data every n-th step."""
    return _both(ground, slow_hosts.cpu_contention, slow_hosts.data_loader)


def two_recurring(ground: Ground) -> Draft:
    """M2: two ranks with periods of their own: rank 0 writes checkpoints, another one's allocator retries."""
    return _both(ground, slow_hosts.checkpoint, slow_hosts.allocator_retry)


def one_after_the_other(ground: Ground) -> Draft:
    """M3: a rank without a CPU in the first half of the run, another that waits for its data in the second."""
    half = ground.job.steps // 2
    return _both(ground, slow_hosts.cpu_contention, slow_hosts.data_loader, (slice(half, None), slice(None, half)))


def rank_and_link(ground: Ground) -> Draft:
    """M4: a rank without a CPU, and a link that is slow."""
    return _both(ground, slow_hosts.cpu_contention, slow_gpus.network)


def gpu_and_host(ground: Ground) -> Draft:
    """M5: a GPU that is throttled, and another rank's host that waits for data every n-th step."""
    return _both(ground, slow_gpus.gpu_throttle, slow_hosts.data_loader)


def _both(ground: Ground, first: Plant, second: Plant, cleared: tuple[slice, slice] | None = None) -> Draft:
    """Both at once, on ranks that are not the same; `cleared` are steps in which each does not happen."""
    parts = [first(ground), second(ground)]
    while set(parts[0].culprits) & set(parts[1].culprits):
        parts = [first(ground), second(ground)]
    if cleared is not None:
        parts = [_without(part, steps) for part, steps in zip(parts, cleared, strict=True)]
    accepted: list[Verdict] = [part.verdict for part in parts]
    accepted += [verdict for part in parts for verdicts in part.unseen_in.values() for verdict in verdicts]
    return Draft(
        merged(tuple(part.plan for part in parts)),
        parts[0].verdict,
        parts[0].cause,
        tuple(rank for part in parts for rank in part.culprits),
        None,
        np.union1d(parts[0].steps, parts[1].steps),
        accepted=tuple(dict.fromkeys(accepted)),
        hidden_in=VIEWS,  # who is asked of each part by itself
        parts=tuple(parts),
        traits=("double",),
    )


def _without(draft: Draft, cleared: slice) -> Draft:
    plan = draft.plan
    for planted in (plan.cpu_ns, plan.blocked_ns, plan.runq_ns, plan.launch_runq_ns):
        planted[cleared] = 0
    plan.gpu_factor[cleared] = 1.0
    plan.transfer_factor[cleared] = 1.0
    gone = np.arange(len(plan.cpu_ns))[cleared]
    return replace(draft, steps=np.setdiff1d(draft.steps, gone))
