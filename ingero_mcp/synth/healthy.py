"""A node with which nothing is wrong, and what nodes say of themselves: to compare the story of the demo with."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from random import Random
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Resource, Sample, Span
from ingero_mcp.synth.story import CLUSTER, MS, US

NODE: Final = "gpu-node-3"
JOB: Final = "finetune-2"
RANKS: Final = 4
COMM: Final = "00f1e70ee2ba5e11"
_COMPUTE_NS: Final = 110 * MS
_REDUCE_NS: Final = 1_400 * US
_EVERY_NS: Final = 250 * MS
_GIB: Final = 1 << 30
# Above what the daemon of the story counts to: the numbers of a node's events are its own.
_FIRST_VITAL: Final = 1_000_000


def resource(node: str, job: str) -> Resource:
    """Who sends."""
    return Resource({semconv.CLUSTER_ID: CLUSTER, semconv.NODE_ID: node, semconv.JOB_ID: job})


def healthy_steps(start_ns: int, steps: int, seed: int = 3) -> Iterator[Span]:
    """Four ranks of one node, each step an all-reduce that all of them reach within a few milliseconds."""
    random = Random(seed)
    now_ns, seq = start_ns, 0
    for step in range(1, steps + 1):
        enter_ns = [now_ns + int(random.gauss(_COMPUTE_NS, MS)) for _ in range(RANKS)]
        done_ns = max(enter_ns) + _REDUCE_NS
        for rank, entered_ns in enumerate(enter_ns):
            for span in _turn(rank, step, entered_ns, done_ns):
                seq += 1
                yield Span(span.name, span.start_ns, span.end_ns, {**span.attributes, semconv.EVENT_SEQ: seq},
                           span.trace_id, random.randbytes(8))  # fmt: skip
        now_ns = done_ns + 500 * US


def vitals(node: str, gpus: int, start_ns: int, end_ns: int) -> Iterator[Sample]:
    """What a node says of itself four times a second: its health, and the memory and clock of its GPUs."""
    random = Random(f"vitals/{node}")
    seq = _FIRST_VITAL
    for time_ns in range(start_ns, end_ns, _EVERY_NS):
        seq += 1
        yield Sample(semconv.HEALTH_SCORE, time_ns, round(random.uniform(0.9, 0.97), 3), {semconv.EVENT_SEQ: seq}, "1")
        for gpu in range(gpus):
            labels: dict[str, AttributeValue] = {semconv.GPU_UUID: f"GPU-{node}-{gpu}"}
            used, clock = int(random.gauss(61, 0.4) * _GIB), int(random.gauss(1_755, 6))
            seq += 2
            yield Sample("gpu.memory.used", time_ns, used, {**labels, semconv.EVENT_SEQ: seq - 1}, "By")
            yield Sample("gpu.clock.sm_mhz", time_ns, clock, {**labels, semconv.EVENT_SEQ: seq}, "MHz")


def _turn(rank: int, step: int, enter_ns: int, done_ns: int) -> Iterator[Span]:
    common: dict[str, AttributeValue] = {
        semconv.RANK: rank,
        semconv.LOCAL_RANK: rank,
        semconv.WORLD_SIZE: RANKS,
        semconv.STEP: step,
        semconv.PID: 5200 + rank,
        semconv.TID: 5200 + rank,
        semconv.PROCESS: "python3",
        semconv.GPU_UUID: f"GPU-{NODE}-{rank}",
    }
    reduce: dict[str, AttributeValue] = {
        semconv.NCCL_OP_TYPE: "ncclAllReduce",
        semconv.NCCL_COMM: COMM,
        semconv.NCCL_SEQ: step - 1,
        semconv.NCCL_RANK: rank,
        semconv.NCCL_NRANKS: RANKS,
        semconv.NCCL_BYTES: 64 << 20,
        semconv.SEQ_ORIGIN: "init",
        semconv.TIMING_SOURCE: semconv.HOST_API,
    }
    trace_id = blake2b(f"{JOB}/{COMM}/{step - 1}".encode(), digest_size=16).digest()
    yield Span("ncclAllReduce", enter_ns, enter_ns + 12 * US, common | reduce, trace_id)
    yield Span(
        "cudaStreamSynchronize", enter_ns + 30 * US, done_ns, common | {semconv.TIMING_SOURCE: semconv.HOST_SYNC}
    )
