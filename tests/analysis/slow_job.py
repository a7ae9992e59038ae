"""A small job for tests of the analysis: its calls are made of how long every rank works in every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Calls, Floats
from ingero_mcp.analysis.evidence import Communicator, Evidence, Matrix, Place, Sends, Timing
from ingero_mcp.analysis.roles import Roles
from ingero_mcp.windows import Window

MS = 1_000_000
START_NS = 1_790_000_000_000_000_000
TRANSFER_NS = 2 * MS


def noise(steps: int, ranks: int, seed: int = 0, sigma: float = 1.0) -> Floats:
    """Work of healthy ranks in milliseconds: 100, give or take a spread of 1."""
    return 100 + sigma * np.random.default_rng(seed).normal(size=(steps, ranks))


def matrix(work_ms: Floats, first_step: int = 0, *, is_gpu_work: bool = True) -> Matrix:
    """Own work `[step, rank]` as the analysis measures it."""
    steps, ranks = work_ms.shape
    numbers = np.arange(steps, dtype=np.int64) + first_step
    return Matrix(work_ms * MS, numbers, np.arange(ranks, dtype=np.int64), "own work", is_gpu_work)


def calls(work_ms: Floats, *, timed: bool = False, named: bool = True) -> Calls:
    """One all-reduce of all ranks at the end of every step, entered when a rank's work is done.

    With `timed` the calls know how long their kernels ran, else what the thread did itself.
    """
    steps, ranks = work_ms.shape
    work = (work_ms * MS).astype(np.int64)
    begin = np.concatenate([[0], np.cumsum(work.max(axis=1) + TRANSFER_NS)[:-1]])[:, None]
    enter = (START_NS + begin + work).reshape(-1)
    done = np.repeat(START_NS + begin[:, 0] + work.max(axis=1) + TRANSFER_NS, ranks)
    step = np.repeat(np.arange(steps), ranks)
    unknown, zero = np.full(steps * ranks, UNKNOWN), np.zeros(steps * ranks, dtype=np.int64)
    rank = np.tile(np.arange(ranks), steps)
    return Calls(
        collective=step, comm=zero, seq=step, op=zero, rank=rank, clock=rank, step=step if named else unknown,
        enter_ns=enter, done_ns=done, wait_ns=done - enter if timed else unknown,
        own_ns=unknown if timed else work.reshape(-1), sync_ns=unknown, bytes=zero + 1024,
        row=np.arange(steps * ranks), comm_ids=("ab" * 8,), ops=("ncclAllReduce",),
    )  # fmt: skip


def evidence(made: Calls, timing: Timing = "host_sync", hosts: Mapping[int, str] | None = None) -> Evidence:
    """What is known of a job that did these calls."""
    none = made.where(np.zeros(0, dtype=np.int64))
    ranks = tuple(np.unique(made.rank).tolist())
    return Evidence(
        cluster_id="c",
        job_id="j",
        window=Window(START_NS, START_NS + 1, "all"),
        newest_ns=START_NS,
        timing=timing,
        world_size=len(ranks),
        calls=made,
        event_seqs=np.arange(len(made)),
        sends=Sends(none, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)),
        work=None,
        places={rank: Place((hosts or {}).get(rank)) for rank in ranks},
        stages={},
        communicators={one: Communicator(one, len(ranks), ranks) for one in made.comm_ids},
    )


def alike(ranks: int) -> Roles:
    """All ranks do the same."""
    return Roles(dict.fromkeys(range(ranks), 0), named=False)


def merged(one: Calls, other: Calls) -> Calls:
    """The calls of two communicators of one job."""
    shifted = replace(
        other,
        collective=other.collective + int(one.collective.max()) + 1,
        comm=other.comm + len(one.comm_ids),
        comm_ids=tuple(f"{name[:-2]}cd" for name in other.comm_ids),
    )
    arrays = {
        name: np.concatenate([getattr(one, name), getattr(shifted, name)])
        for name in Calls.__dataclass_fields__
        if name not in ("comm_ids", "ops")
    }
    return Calls(**arrays, comm_ids=one.comm_ids + shifted.comm_ids, ops=one.ops)
