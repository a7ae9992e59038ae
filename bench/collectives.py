"""Collective spans as the probe daemon sends them: 24 attributes each, as export requests of 1,000."""

from __future__ import annotations

from random import Random

from ingero_mcp import semconv
from ingero_mcp.clock import now_ns
from ingero_mcp.events import AttributeValue, Resource, Span
from ingero_mcp.otlp.encode import encode_spans

SPANS = 1000


def requests(count: int, node: str, seed: int) -> list[bytes]:
    """`count` requests of `SPANS` spans, all different."""
    random = Random(seed)
    resource = Resource(
        {
            semconv.CLUSTER_ID: "bench",
            semconv.NODE_ID: node,
            semconv.JOB_ID: "job",
            semconv.WORLD_SIZE: 8,
            semconv.SERVICE_NAME: "ingero",
        }
    )
    start_ns = now_ns()
    return [
        encode_spans(resource, [_span(random, start_ns, number * SPANS + place) for place in range(SPANS)])
        for number in range(count)
    ]


def _span(random: Random, start_ns: int, number: int) -> Span:
    rank = number % 8
    attributes: dict[str, AttributeValue] = {
        semconv.NCCL_OP_TYPE: "ncclAllReduce",
        semconv.NCCL_COMM: "0123456789abcdef",
        semconv.NCCL_SEQ: number // 8,
        semconv.NCCL_RANK: rank,
        semconv.NCCL_NRANKS: 8,
        semconv.NCCL_COUNT: 1 << 20,
        semconv.NCCL_DATATYPE: "float32",
        semconv.NCCL_BYTES: 4 << 20,
        semconv.NCCL_REDUCE_OP: "sum",
        semconv.CUDA_STREAM: 7,
        semconv.SEQ_ORIGIN: "init",
        semconv.PID: 4100 + rank,
        semconv.TID: 4100 + rank,
        semconv.PROCESS: "python3",
        semconv.RANK: rank,
        semconv.LOCAL_RANK: rank,
        semconv.STEP: number // 64,
        semconv.GPU_UUID: f"GPU-{rank}",
        semconv.TIMING_SOURCE: semconv.HOST_API,
        semconv.EVENT_SEQ: number,
        semconv.CPU_NS: random.randrange(10**8),
        semconv.BLOCKED_NS: random.randrange(10**8),
        semconv.RUNQ_NS: random.randrange(10**6),
        semconv.SYNC_NS: random.randrange(10**8),
    }
    enter_ns = start_ns + number * 10_000
    return Span("ncclAllReduce", enter_ns, enter_ns + 12_000, attributes, random.randbytes(16), random.randbytes(8))
