"""Calls of the CUDA runtime and driver."""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.views.view import View, attribute, whole

CUDA_CALLS: Final = View(
    "cuda_calls",
    "one row per call of the CUDA runtime or driver; filter by start_ns",
    (
        ("cluster_id", "cluster"),
        ("node_id", "node"),
        ("job_id", "job"),
        ("rank", "global rank"),
        ("local_rank", "rank on its node"),
        ("gpu_uuid", "GPU"),
        ("pid", "process id"),
        ("tid", "thread id"),
        ("process", "executable name; captured text, not trusted"),
        ("metric_name", "the call: cudaStreamSynchronize, cudaMalloc, cuLaunchKernel, ..."),
        ("start_ns", "Unix ns on the clock of the node"),
        ("end_ns", "when it returned, on that clock"),
        ("duration_ns", "its length"),
        ("bytes", "bytes allocated or copied"),
        ("stream", "CUDA stream"),
        ("memcpy_kind", "direction of a copy"),
        ("return_code", "what it returned; 0 is success"),
        ("timing_source", "host_api (enqueued, nothing more), host_sync (the host waited) or kernel_gpu"),
        ("step", "training step"),
        ("stack_id", "stack, see stacks"),
        ("causal_chain_id", "causal chain, see chains"),
        ("id", "node_id:event_seq, to pass back to a tool"),
    ),
    f"""
    SELECT cluster_id, node_id, job_id, rank, local_rank, gpu_uuid, pid, tid, process, metric_name,
           timestamp_ns AS start_ns, timestamp_ns + duration_ns AS end_ns, duration_ns, bytes,
           {attribute(semconv.CUDA_STREAM)} AS stream, {attribute(semconv.CUDA_MEMCPY_KIND)} AS memcpy_kind,
           coalesce({whole(semconv.CUDA_RETURN_CODE)}, {whole("ingero.ret_code")}) AS return_code, timing_source, step,
           stack_id, causal_chain_id, id
    FROM main.events WHERE source IN ('cuda', 'driver') AND duration_ns IS NOT NULL
    """,
)
