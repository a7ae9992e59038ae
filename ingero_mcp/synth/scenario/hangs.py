"""Families in which the job stands still: F6, F10, F11, F16."""

from __future__ import annotations

from dataclasses import replace

from ingero_mcp.synth.scenario.draft import Draft, Ground
from ingero_mcp.synth.scenario.plan import Stop, StopKind


def gpu_fault(ground: Ground) -> Draft:
    """F6: a kernel of one GPU never ends; its host goes on to enqueue until it waits."""
    draft = _stopped(ground, "gpu", "gpu_fault")
    draft.plan.symptom = "xid"
    # All hosts wait in the same way; only the driver's message tells which GPU it is.
    return draft if ground.job.has_gpu_counters else replace(draft, hidden_in=("probe",))


def mismatched_collective(ground: Ground) -> Draft:
    """F10: one rank calls another collective, or with another size, than its peers."""
    draft = _stopped(ground, "mismatch", "mismatched_collective")
    # In odd steps only the size differs, which op traces do not record.
    is_size = draft.plan.stop is not None and draft.plan.stop.step % 2 == 1
    return replace(draft, hidden_in=("optrace",)) if is_size else draft


def early_exit(ground: Ground) -> Draft:
    """F11: some ranks run out of data and end; the others wait for them."""
    return _stopped(ground, "exit", "early_exit", several=True)


def host_hang(ground: Ground) -> Draft:
    """F16: a process falls silent, in C code or in a lock."""
    return _stopped(ground, "host", "host_hang")


def _stopped(ground: Ground, kind: StopKind, cause: str, several: bool = False) -> Draft:
    plan, job = ground.plan(), ground.job
    step = int(ground.random.integers(job.steps // 3, job.steps * 4 // 5))
    ranks = {ground.rank()}
    if several and ground.random.random() < 0.3:
        ranks.add(ground.rank())
    after = 0 if kind == "exit" else int(ground.random.integers(2))
    plan.stop = Stop(kind, step, tuple(sorted(ranks)), after, int(ground.random.integers(30, 120)) * 1_000_000_000)
    return Draft(plan, "hang", cause, tuple(sorted(ranks)), steps=ground.random.integers(step, step + 1, 1))
