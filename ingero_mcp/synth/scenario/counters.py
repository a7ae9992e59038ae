"""What the GPUs and the network stack of the hosts say about themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue
from ingero_mcp.synth.scenario.block import Block, Template, block
from ingero_mcp.synth.scenario.run import Run
from ingero_mcp.synth.scenario.who import gpu_uuid

SECOND: Final = 1_000_000_000
_CLOCK_MHZ: Final = 1755.0
_SAMPLES: Final = 60


def counters(run: Run, random: np.random.Generator) -> Iterator[Block]:
    """GPU clocks and throttling, Xid messages, retransmits: as far as the hosts of this job have them."""
    if run.job.has_gpu_counters:
        yield from _gpu(run, random)
        yield from _xid(run)
    if run.job.sees_retransmits:
        yield from _retransmits(run, random)


def _gpu(run: Run, random: np.random.Generator) -> Iterator[Block]:
    """About sixty samples over the run, of every GPU."""
    layout = run.job.layout
    first, last = int(run.base_ns[0]), int(run.base_ns[run.last_step] + run.step_ns[0])
    times = np.arange(first, last, max((last - first) // _SAMPLES, SECOND // 10))
    steps = np.searchsorted(run.base_ns[: run.last_step + 1], times, side="right") - 1
    throttled = next((layer for layer in run.plan.layers if layer.symptom == "throttle"), None)
    for rank in range(layout.world):
        factor = throttled.gpu_factor[steps, rank] if throttled else np.ones(len(steps))
        clock = np.round(_CLOCK_MHZ / factor + random.normal(0, 4, len(times)), 0)
        uuid = {semconv.GPU_UUID: gpu_uuid(layout, rank)}
        host = layout.host_of(rank)
        yield block(Template("sample", "gpu.clock.sm_mhz", uuid, "MHz"), rank, host, times, value=clock)
        active = (factor > 1.0).astype(float)
        yield block(Template("sample", "gpu.throttle.sw_thermal_active", uuid), rank, host, times, value=active)


def _xid(run: Run) -> Iterator[Block]:
    stop = run.plan.stop
    if stop is not None and run.plan.symptom == "xid":
        for rank in stop.ranks:
            attributes: dict[str, AttributeValue] = {
                "gpu.xid.code": 79,
                semconv.GPU_UUID: gpu_uuid(run.job.layout, rank),
            }
            at = run.base_ns[stop.step : stop.step + 1] + run.step_ns[0] // 3
            yield block(Template("point", "gpu.xid", attributes), rank, run.job.layout.host_of(rank), at)


def _retransmits(run: Run, random: np.random.Generator) -> Iterator[Block]:
    """A few on every host at any time; many on both ends of a slow link."""
    template = Template("point", "tcp.retransmit", {})
    cut = run.last_step + 1
    slow = (run.plan.transfer_factor[:cut] - 1) * 4
    for host in range(len(run.job.layout.hosts)):
        is_end = run.plan.link is not None and host in run.plan.link
        counts = random.poisson(0.02 + np.minimum(slow, 6.0) * is_end)
        steps = np.repeat(np.arange(cut), counts)
        start = run.base_ns[steps] + (run.step_ns[steps % cut] * random.random(len(steps))).astype(np.int64)
        yield block(template, -1, host, np.minimum(start, run.base_ns[cut - 1] + SECOND))
