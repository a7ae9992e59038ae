"""Families in which GPUs or links are slow, or the work is not dealt out evenly: F5, F7, F12, F13."""

from __future__ import annotations

import numpy as np

from ingero_mcp.synth.scenario.draft import Draft, Ground
from ingero_mcp.synth.scenario.layout import Comm, Layout
from ingero_mcp.synth.scenario.truth import Group


def gpu_throttle(ground: Ground) -> Draft:
    """F5: one GPU is slower by a factor from the onset on; some slowly waver."""
    plan, job = ground.plan(), ground.job
    rank, first = ground.rank(), ground.onset()
    steps = np.arange(first, job.steps)
    factor = ground.unit_ns / job.compute_ns
    wave = 1 + 0.2 * np.sin(np.arange(job.steps) / 20) * (ground.random.random() < 0.3)
    plan.gpu_factor[first:, rank] += (factor * wave)[first:]
    plan.symptom = "throttle"
    return Draft(
        plan,
        "straggler",
        "gpu_throttle",
        (rank,),
        None,
        steps,
        unseen_in={} if job.has_gpu_counters else {"probe": ("undecidable", "healthy", "straggler")},
    )


def network(ground: Ground) -> Draft:
    """F7: the link between two hosts is slow from the onset on, or flaps; only communicators that cross it suffer."""
    plan, job, layout = ground.plan(), ground.job, ground.job.layout
    first = int(ground.random.integers(job.steps // 4, job.steps // 2))
    crossing = [
        (a, b)
        for a in range(len(layout.hosts))
        for b in range(a + 1, len(layout.hosts))
        if any(layout.crosses(comm, (a, b)) for comm in layout.comms)
    ]
    link = crossing[int(ground.random.integers(len(crossing)))]

    def is_slow(layout: Layout, comm: Comm) -> bool:
        return layout.crosses(comm, link)

    usual_ns = job.transfer_ns["dp"]
    steps = np.arange(first, job.steps)
    flaps = bool(ground.random.random() < 0.3)
    if flaps:
        # Up and down: slow for some steps, then well again.
        steps = steps[(steps - first) // int(ground.random.integers(4, 10)) % 2 == 0]
    plan.transfer_factor[steps] += ground.unit_ns / usual_ns * ground.random.uniform(0.8, 1.2, len(steps))
    plan.is_slow = is_slow
    plan.symptom = "retransmit"
    plan.link = link
    ranks = tuple(sorted({rank for comm in layout.comms if is_slow(layout, comm) for rank in comm.ranks}))
    names = "|".join(layout.hosts[host] for host in link)
    return Draft(
        plan,
        "network",
        "network",
        (),
        Group("link", names, ranks),
        steps,
        traits=("flapping",) if flaps else (),
        unseen_in={} if job.sees_retransmits else {"probe": ("undecidable", "healthy", "network")},
    )


def sequence_imbalance(ground: Ground) -> Draft:
    """F12: the tokens of a replica differ from step to step, and with them its work; nobody is at fault.

    The coefficient of variation of the work is 0.125 at severity 5.
    """
    plan, job, layout = ground.plan(), ground.job, ground.job.layout
    variation = 0.025 * ground.severity
    drawn = ground.random.gamma(1 / variation**2, variation**2, (job.steps, 1, layout.dp, 1))
    plan.gpu_factor *= np.broadcast_to(drawn, (job.steps, *layout.shape)).reshape(job.steps, -1)
    even = ground.plan()
    even.gpu_factor *= drawn.mean(axis=(1, 2, 3))[:, None]
    return Draft(
        plan,
        "imbalance",
        "sequence_imbalance",
        (),
        Group("job", layout.job_id, tuple(range(layout.world))),
        np.arange(job.steps),
        unseen_in={"probe": ("undecidable", "healthy", "imbalance")},
        even=even,
    )


def stage_imbalance(ground: Ground) -> Draft:
    """F13: one stage has more layers than the others: its work is 1.3 times theirs at severity 5."""
    plan, job, layout = ground.plan(), ground.job, ground.job.layout
    stage = layout.pp - 1 if ground.random.random() < 0.6 else int(ground.random.integers(layout.pp))
    ranks = layout.ranks_of_stage(stage)
    plan.gpu_factor[:, list(ranks)] *= 1 + 0.06 * ground.severity
    even = ground.plan()
    even.gpu_factor *= 1 + 0.06 * ground.severity / layout.pp
    return Draft(
        plan,
        "imbalance",
        "stage_imbalance",
        (),
        Group("stage", str(stage), ranks),
        np.arange(job.steps),
        unseen_in={"probe": ("undecidable", "healthy", "imbalance")},
        even=even,
    )
