"""A call of the GPU that is usually short and took long, together with what can have held it up."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from ingero_mcp.analysis.chains.allocator import FREES
from ingero_mcp.analysis.chains.bursts import Burst, blocks_of, bursts
from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.causes import TOGETHER, causes_of, in_short, root_cause, severity_of
from ingero_mcp.analysis.chains.chain import Chain, Line
from ingero_mcp.analysis.chains.record import BLOCK_NS, SECOND_NS, Calls, Record, first_ids
from ingero_mcp.analysis.chains.weighted import middle, worst_tail
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import duration_text, listed

SYNCHRONIZES: Final = frozenset((
    "cudaStreamSync", "cudaDeviceSync", "cuCtxSynchronize", "cuStreamSynchronize", "cudaStreamSynchronize",
    "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cuMemcpy",
))  # fmt: skip
"""Calls that wait for the GPU: that they are long means that it had much to do."""

_LAYERS: Final = {"cuda": "CUDA", "driver": "DRIVER", "graph": "GRAPH"}


def tail_latency(record: Record) -> Iterator[Chain]:
    """One chain for each operation and time; none where nothing was seen that can have held the calls up. Calls that
    give memory back have a rule of their own."""
    for burst in bursts(record.slow):
        within = blocks_of(burst)
        own = [one for one in record.calls if one.op == burst.op]
        here = [one for one in own if within.touches(one.block_ns, one.block_ns + BLOCK_NS)]
        rest = [one for one in own if one not in here]
        if not here or burst.op in FREES:
            continue
        trouble = Trouble(burst.span, burst.pids, burst.excess_ns, burst.op, burst.slow, _usual_bytes(here))
        causes = tuple(cause for cause in causes_of(record, trouble) if _counts(burst.op, cause))
        if any(not cause.is_work for cause in causes):
            yield _chain(record, burst, causes, here, rest)


def _counts(op: str, cause: Cause) -> bool:
    """Of a call that waits for the GPU, only time without a CPU is anybody else's fault."""
    return op not in SYNCHRONIZES or (cause.strength > 0 and not cause.raises)


def _usual_bytes(here: list[Calls]) -> int | None:
    known = [one.p50_bytes for one in here if one.p50_bytes is not None]
    return int(median(known)) if known else None


def _chain(record: Record, burst: Burst, causes: tuple[Cause, ...], here: list[Calls], rest: list[Calls]) -> Chain:
    p50_ns, p99_ns = middle(here), worst_tail(here)
    usual_ns = middle(rest) if rest else None
    ratio = f"{p99_ns / p50_ns:.1f}x p50 {duration_text(p50_ns)}"
    longest = max(burst.slow, key=lambda one: one.longest_ns)
    call = Line(_LAYERS.get(here[0].source, "CUDA"), burst.op, f"p99 {duration_text(p99_ns)} ({ratio})", p99_ns)
    lines = (*(line for cause in causes for line in cause.lines), call)
    ids = first_ids(
        event_id for one in sorted(burst.slow, key=lambda one: -one.longest_ns) for event_id in one.event_ids
    )
    slow = Statement(
        f"{sum(one.count for one in burst.slow)} slow {burst.op} of {sum(one.count for one in here)}, longest "
        f"{duration_text(longest.longest_ns)}, {duration_text(burst.excess_ns)} longer than usual in all",
        burst.excess_ns / 1e6,
        "ms",
        ids,
    )
    span = burst.span
    return Chain(
        cluster_id=record.cluster_id,
        node_id=record.node_id,
        kind="cuda_graph" if here[0].source == "graph" else "tail_latency",
        descriptor=f"tail-{burst.op}",
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        severity=severity_of(causes, burst.lost),
        summary=f"{burst.op} p99 {duration_text(p99_ns)} ({ratio}): {in_short(causes)}",
        root_cause=f"{root_cause(causes)} ({TOGETHER})",
        explanation=_explanation(burst, p99_ns, p50_ns, usual_ns),
        recommendations=tuple(dict.fromkeys(advice for cause in causes for advice in cause.advice)),
        op=burst.op,
        p99_ns=p99_ns,
        p50_ns=p50_ns,
        usual_ns=usual_ns,
        timeline=lines,
        evidence=(slow, *(statement for cause in causes for statement in cause.statements)),
        job_id=record.job_id,
    )


def _explanation(burst: Burst, p99_ns: int, p50_ns: int, usual_ns: int | None) -> str:
    pids = f" of pid {listed(list(map(str, sorted(burst.pids))))}" if burst.pids else ""
    seconds = (burst.span.end_ns - burst.span.start_ns) / SECOND_NS
    text = (
        f"For {duration_text(seconds * 1e9)}, calls of {burst.op}{pids} took {duration_text(burst.excess_ns)} longer "
        f"than their median in all. In these minutes the 99th percentile is {duration_text(p99_ns)}, the median "
        f"{duration_text(p50_ns)}; calls that were counted but not kept one by one are included. Calls of a cold start "
        "are not among the slow ones."
    )
    if usual_ns:
        text += (
            f" In the rest of the recording the median is {duration_text(usual_ns)}, against which the 99th percentile "
            f"is {p99_ns / usual_ns:.1f}x."
        )
    return text
