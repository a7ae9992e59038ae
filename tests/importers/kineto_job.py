"""A small training job as the PyTorch profiler writes it down, one trace per rank, in the styles of several versions.

In every step each rank copies its input, computes, and takes part in an all-reduce, whose kernel ends on all ranks
together. All randomness comes from the seed.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

BASE_NS = 1_796_040_000_000_000_000
STEP_US = 100_000
COLLECTIVE_STREAM = 20
COMPUTE_STREAM = 7

Style = Literal["linked", "named", "numbered"]
"""linked: kernels say nothing, only what launched them (PyTorch 1.13). named: their arguments name collective and group
(2.4). numbered: and the sequence number (2.12)."""


@dataclass(frozen=True)
class Job:
    """`late` is (rank, first step, milliseconds): from that step on the rank enters the all-reduce that much later."""

    ranks: int = 2
    steps: int = 3
    style: Style = "named"
    late: tuple[int, int, float] | None = None
    relative: bool = True
    seed: int = 0

    def trace(self, rank: int) -> dict[str, Any]:
        return _Writer(self, rank).trace()

    def write(self, folder: Path) -> list[Path]:
        """One file per rank, named as people name them; every second one gzipped."""
        paths = []
        for rank in range(self.ranks):
            text = json.dumps(self.trace(rank), indent=1).encode()
            path = folder / f"rank{rank}.pt.trace.json{'.gz' if rank % 2 else ''}"
            path.write_bytes(gzip.compress(text) if rank % 2 else text)
            paths.append(path)
        return paths


@dataclass
class _Writer:
    job: Job
    rank: int
    events: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 1000

    def trace(self) -> dict[str, Any]:
        dice = random.Random(self.job.seed)
        self.events.append(
            {"ph": "M", "name": "process_name", "pid": 4000 + self.rank, "tid": 0, "ts": 0, "args": {"name": "python"}}
        )
        for step in range(self.job.steps):
            ready = [step * STEP_US + 20_000 + dice.randint(0, 500) for _ in range(self.job.ranks)]
            if self.job.late is not None and step >= self.job.late[1]:
                ready[self.job.late[0]] += round(self.job.late[2] * 1000)
            self.step(step, ready[self.rank], max(ready) + 1_500)
        top: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Stand-in GPU"}]}
        if self.job.relative:
            top["baseTimeNanoseconds"] = BASE_NS
        top["traceEvents"] = self.events
        top["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": self.job.ranks}
        return top

    def step(self, step: int, ready: float, end: float) -> None:
        begin = step * STEP_US
        self.host("user_annotation", f"ProfilerStep#{100 + step}", begin, STEP_US - 10)
        self.host("cpu_op", "aten::mm", begin + 10, 30)
        self.host("python_function", "train.py(12): forward", begin + 5, 900)
        self.launch("cudaMemcpyAsync", begin + 20, 5)
        self.gpu("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", begin + 40, 50, COMPUTE_STREAM, {"bytes": 4096})
        self.launch("cudaLaunchKernel", begin + 100, 8)
        kernel = "void at::native::vectorized_elementwise_kernel<4>(int, float*)"
        self.gpu("kernel", kernel, begin + 120, 9_000, COMPUTE_STREAM)
        self.all_reduce(step, begin + 200, ready, end)
        self.launch("cudaStreamSynchronize", begin + 400, end - begin - 350)
        self.gpu("gpu_memset", "Memset (Device)", end + 20, 3, COMPUTE_STREAM, {"bytes": 64})

    def all_reduce(self, step: int, called: float, ready: float, end: float) -> None:
        said = self.said(step)
        external = 500_000 + step
        told = {"External id": external, **said}
        self.host("cpu_op", "c10d::allreduce_", called, 100, {"External id": external - 1})
        self.host("cpu_op", "record_param_comms", called + 5, 90, told)
        shape = {"Input Dims": [[2048]], "Input type": ["c10::BFloat16"]}
        self.host("user_annotation", "nccl:all_reduce", called + 10, 80, {"External id": external + 1, **shape})
        self.launch("cudaLaunchKernel", called + 50, 7)
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
        # What old versions wrote as the external id of a kernel was its correlation id.
        link = {"External id": self.correlation} if self.job.style == "linked" else told
        self.gpu("gpu_user_annotation", "nccl:all_reduce", ready - 0.001, end - ready + 0.002, COLLECTIVE_STREAM)
        self.gpu("kernel", name, ready, end - ready, COLLECTIVE_STREAM, link)

    def said(self, step: int) -> dict[str, Any]:
        if self.job.style == "linked":
            return {}
        said: dict[str, Any] = {
            "Collective name": "allreduce",
            "In msg nelems": 2048,
            "Out msg nelems": 2048,
            "Group size": self.job.ranks,
            "dtype": "BFloat16",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": str(list(range(self.job.ranks))),
        }
        return said | ({"Seq": 40 + step} if self.job.style == "numbered" else {})

    def host(
        self, category: str, name: str, ts: float, dur: float, args: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        event = {"ph": "X", "cat": category, "name": name, "pid": 4000 + self.rank, "tid": 4000 + self.rank}
        event |= {"ts": self.time(ts), "dur": dur, "args": dict(args or {})}
        self.events.append(event)
        return event

    def launch(self, name: str, ts: float, dur: float) -> None:
        self.correlation += 1
        self.host("cuda_runtime", name, ts, dur, {"correlation": self.correlation})

    def gpu(
        self, category: str, name: str, ts: float, dur: float, stream: int, args: Mapping[str, Any] | None = None
    ) -> None:
        told = {"device": 0, "stream": stream, "correlation": self.correlation, **(args or {})}
        event = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": self.time(ts), "dur": dur}
        self.events.append(event | {"args": told})

    def time(self, ts: float) -> float:
        return ts if self.job.relative else ts + BASE_NS // 1000


def kernel(ts: object, dur: object = 5, name: Any = "ncclDevKernel_AllReduce_Sum_f32", **args: Any) -> dict[str, Any]:
    """One kernel, with the arguments of an all-reduce unless `args` say otherwise; None takes one away."""
    usual = {
        "stream": 7,
        "Collective name": "allreduce",
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "dtype": "Float",
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
    }
    told = {key: value for key, value in (usual | args).items() if value is not None}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": told}


def document(*events: object, **members: object) -> dict[str, Any]:
    """A trace of these events, by rank 0 of two, with a base unless `members` say otherwise; None takes one away."""
    usual: dict[str, object] = {
        "baseTimeNanoseconds": BASE_NS,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    }
    told = {key: value for key, value in (usual | members).items() if value is not None}
    return {"schemaVersion": 1, **told, "traceEvents": list(events)}
