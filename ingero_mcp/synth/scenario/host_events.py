"""The events of a host that betray why a rank was late, by symptom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue
from ingero_mcp.synth.scenario.block import Block, Template, block
from ingero_mcp.synth.scenario.gaps import Gap
from ingero_mcp.synth.scenario.plan import Symptom
from ingero_mcp.synth.scenario.run import Run

EventsOf = Callable[[Run, Gap, np.random.Generator], Iterator[Block]]
_PAIRS: Final = 12
MIB: Final = 1 << 20


def _data_wait(run: Run, gap: Gap, random: np.random.Generator) -> Iterator[Block]:
    """A worker of the data loader reads its shard, from the disk."""
    worker: dict[str, AttributeValue] = {semconv.PID: 6000 + gap.rank, semconv.PROCESS: "pt_data_worker"}
    read = Template(
        "span",
        "file.io",
        worker | {"io.operation": "read", "io.path": "/data/train/shard-00412.tar", "io.bytes": 64 * MIB},
    )
    end = gap.start_ns + gap.length_ns
    yield block(read, -1, gap.host, gap.start_ns - gap.length_ns // 10, end - gap.length_ns // 20)
    disk = Template("span", "block.io", {"io.operation": "read", "io.device": "nvme0n1", "io.bytes": MIB})
    for number in range(4):
        start = gap.start_ns + gap.length_ns * number // 4
        yield block(disk, -1, gap.host, start, start + gap.length_ns // 5)


def _collector(run: Run, gap: Gap, random: np.random.Generator) -> Iterator[Block]:
    if run.job.has_gc_hook:
        template = Template("span", "python.gc", {"python.gc.generation": 2})
        yield block(template, gap.rank, gap.host, gap.start_ns, gap.start_ns + gap.length_ns, columns=_step(run, gap))


def _allocator(run: Run, gap: Gap, random: np.random.Generator) -> Iterator[Block]:
    """Blocks given back and asked for again, as many times as the gap is long."""
    for number in range(2 * _PAIRS):
        name, share, begun = ("cudaFree", 6, 6 * number) if number < _PAIRS else ("cudaMalloc", 4, 0)
        begun = begun or 6 * _PAIRS + 4 * (number - _PAIRS) if number else 0
        size = int(random.choice((2, 16, 64, 256))) * MIB
        attributes: dict[str, AttributeValue] = {semconv.TIMING_SOURCE: semconv.HOST_API, semconv.CUDA_RETURN_CODE: 0}
        if name == "cudaMalloc":
            attributes[semconv.CUDA_BYTES] = size
        start = gap.start_ns + gap.length_ns * begun // (10 * _PAIRS)
        end = start + gap.length_ns * share // (10 * _PAIRS)
        yield block(Template("span", name, attributes), gap.rank, gap.host, start, end, columns=_step(run, gap))


def _checkpoint(run: Run, gap: Gap, random: np.random.Generator) -> Iterator[Block]:
    template = Template(
        "span",
        "file.io",
        {"io.operation": "write", "io.path": "/checkpoints/latest/rank0.pt", "io.bytes": 512 * MIB},
    )
    end = gap.start_ns + gap.length_ns
    yield block(template, gap.rank, gap.host, gap.start_ns + gap.length_ns // 50, end, columns=_step(run, gap))


def _compiler(run: Run, gap: Gap, random: np.random.Generator) -> Iterator[Block]:
    for number, name in enumerate(("cc1plus", "ptxas", "cc1plus", "ptxas")):
        pid = 7000 + 10 * gap.rank + number
        template = Template("point", "process.exec", {semconv.PID: pid, semconv.PROCESS: name})
        yield block(template, -1, gap.host, gap.start_ns + gap.length_ns * number // 5)


def _cron(run: Run, gap: Gap, random: np.random.Generator) -> Iterator[Block]:
    template = Template("point", "process.exec", {semconv.PID: 9001, semconv.PROCESS: "logrotate"})
    yield block(template, -1, gap.host, gap.start_ns)


def _swap(run: Run, gap: Gap, random: np.random.Generator) -> Iterator[Block]:
    """The kernel reads pages back from the swap device, and writes others out."""
    for operation, share in (("read", 3), ("write", 2)):
        template = Template("span", "block.io", {"io.operation": operation, "io.device": "dm-1", "io.bytes": MIB})
        yield block(template, -1, gap.host, gap.start_ns, gap.start_ns + gap.length_ns * share // 4)


def _step(run: Run, gap: Gap) -> dict[str, object]:
    if gap.steps is None or not run.job.step_known:
        return {}
    return {semconv.STEP: gap.steps + run.job.first_step}


EVENTS_OF: Final[dict[Symptom, EventsOf]] = {
    "data_wait": _data_wait,
    "gc": _collector,
    "alloc": _allocator,
    "checkpoint": _checkpoint,
    "compile": _compiler,
    "host_jitter": _cron,
    "swap": _swap,
}
