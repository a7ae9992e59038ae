"""The views of calls, threads, scores, gaps, communicators and jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ingero_mcp.store import Store, open_store
from tests.views.rows import COMM, T0, S, ask, call, put

PLACE = {"cluster_id": "c", "node_id": "n", "job_id": "j", "rank": 3, "event_seq": 7, "timestamp_ns": T0}


@pytest.fixture
def memory() -> Iterator[Store]:
    with open_store(None) as store:
        yield store


def event(name: str, source: str, attrs: dict[str, Any] | None = None, **columns: Any) -> dict[str, Any]:
    return PLACE | {"metric_name": name, "source": source, "attrs_json": json.dumps(attrs or {})} | columns


def test_calls_of_cuda_are_those_with_a_length(memory: Store) -> None:
    attrs = {"cuda.stream": 7, "cuda.memcpy_kind": "HostToDevice", "cuda.return_code": 2}
    put(
        memory,
        event("cudaMemcpyAsync", "cuda", attrs, duration_ns=5, bytes=64, pid=1, tid=2, process="python3", step=4),
        event("cuLaunchKernel", "driver", {"ingero.ret_code": 1}, duration_ns=0, timestamp_ns=T0 + 1),
        event("gpu.cuda.operation.count", "cuda", value_double=1.0),
        event("sched.offcpu", "host", duration_ns=5),
    )
    assert ask(memory, "SELECT * FROM cuda_calls ORDER BY start_ns") == [
        ("c", "n", "j", 3, None, None, 1, 2, "python3", "cudaMemcpyAsync", T0, T0 + 5, 5, 64, "7", "HostToDevice", 2,
         None, 4, None, None, "n:7"),
        ("c", "n", "j", 3, None, None, None, None, None, "cuLaunchKernel", T0 + 1, T0 + 1, 0, None, None, None, 1, None,
         None, None, None, "n:7"),
    ]  # fmt: skip


def test_times_off_the_cpu_say_who_had_it(memory: Store) -> None:
    attrs = {"sched.state": "runqueue", "sched.next_comm": "stress", "sched.next_pid": 99}
    put(memory, event("sched.offcpu", "host", attrs, duration_ns=2 * S, pid=1, tid=2))
    assert ask(memory, "SELECT * FROM offcpu") == [
        ("c", "n", "j", 3, 1, 2, None, T0, T0 + 2 * S, 2 * S, "runqueue", "stress", 99, None, None, "n:7")
    ]


def test_scores_and_gaps_are_listed(memory: Store) -> None:
    gap = {"probe.lost_events": 12, "probe.gap.start_ns": T0 - S, "probe.gap.end_ns": T0, "probe.lost.full": 12}
    put(memory, event("ingero.node.health_score", "health", value_double=0.25), event("probe.gap", "probe", gap))
    assert ask(memory, "SELECT * FROM health") == [("c", "n", "j", 3, T0, 0.25, "n:7")]
    assert ask(memory, "SELECT * FROM gaps") == [("c", "n", T0, T0 - S, T0, 12, json.dumps(gap), "n:7")]


def test_a_communicator_says_who_belongs_to_it_and_how_far_it_came(memory: Store) -> None:
    told = {"nccl.comm.ranks": [0, 4], "nccl.comm.name": "dp", "nccl.comm.desc": "replicas"}
    put(memory, *(call(rank, seq, seq * S, nranks=2) for rank in (0, 4) for seq in range(3, 9)))
    put(memory, call(0, 99, 10 * S, metric_name="ncclSend"))
    put(memory, *(call(rank, 0, 60 * S, nranks=None) for rank in (0, 4)))
    put(memory, call(0, 0, 70 * S, metric_name="nccl.communicator", attrs=told) | {"coll_seq": None})
    put(memory, call(7, 0, 0, comm_id="00000000000000aa", nranks=None, job_id=None))
    assert ask(memory, "SELECT * FROM communicators ORDER BY comm_id DESC") == [
        ("c", "j", COMM, 4, 2, 2, 14, 1, 0, 8, T0 + 3 * S, T0 + 70 * S, "[0,4]", "dp", "replicas"),
        ("c", None, "00000000000000aa", None, 1, 1, 1, 0, 0, 0, T0, T0, None, None, None),
    ]


def test_jobs_are_counted(memory: Store) -> None:
    put(memory, *(call(rank, 0, rank, node_id=f"n{rank // 2}", world_size=8) for rank in range(4)))
    put(memory, call(0, 0, 0, job_id=None))
    assert ask(memory, "SELECT * FROM jobs") == [("c", "j", 8, 4, 2, 4, T0, T0 + 3)]
