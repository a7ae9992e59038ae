"""The GPU's allocator gives much of its memory back at once: near the limit, or because it was told to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ingero_mcp.analysis.chains.allocator import ADVICE, FREES
from ingero_mcp.analysis.chains.causes import TOGETHER
from ingero_mcp.analysis.chains.chain import JOINED_NS, Chain, Line
from ingero_mcp.analysis.chains.record import BLOCK_NS, SECOND_NS, Allocations, Calls, Record, Span, first_ids, named
from ingero_mcp.analysis.chains.weighted import middle, worst_tail
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.severity import Severity
from ingero_mcp.analysis.words import duration_text, listed

_LEAST: Final = 10  # calls in a second
_MATERIAL: Final = 0.2  # of the time from the first to the last
_SEVERE: Final = 0.25  # of a second or more
_SMALL: Final = 0.01


def memory_given_back(record: Record) -> Iterator[Chain]:
    """Seconds in which cudaFree, which waits for the GPU, takes most of the time of a process; of each operation those
    that follow each other soon are one chain."""
    run: list[Allocations] = []
    frees = (one for one in record.allocations if one.op in FREES and _is_burst(one))
    for one in sorted(frees, key=lambda one: (one.op, one.start_ns)):
        if run and (one.op != run[-1].op or one.start_ns > run[-1].end_ns + JOINED_NS):
            yield _chain(record, run)
            run = []
        run.append(one)
    if run:
        yield _chain(record, run)


def _is_burst(one: Allocations) -> bool:
    return one.count >= _LEAST and one.total_ns >= _MATERIAL * (one.end_ns - one.start_ns)


def _chain(record: Record, run: list[Allocations]) -> Chain:
    op, span = run[0].op, Span(run[0].start_ns, max(one.end_ns for one in run))
    within = span.cells(BLOCK_NS)
    own = [one for one in record.calls if one.op == op]
    here = [one for one in own if within.touches(one.block_ns, one.block_ns + BLOCK_NS)]
    rest = [one for one in own if one not in here]
    p50_ns, p99_ns = middle(here), worst_tail(here)
    total_ns = sum(one.total_ns for one in run)
    who = listed(list(dict.fromkeys(named(one.process, one.pid) for one in run)))
    count = sum(one.count for one in run)
    counted = listed([f"{number} {name}" for name, number in sorted(record.counted.items())])
    tail = f"p99 {duration_text(p99_ns)} ({_ratio(p99_ns, p50_ns)}x p50 {duration_text(p50_ns)})"
    cause = f"the GPU's allocator of {who} gave memory back: {count} {op} in {duration_text(total_ns)}"
    fact = f"{cause}, longest {duration_text(max(one.longest_ns for one in run))}; {counted} in the whole recording"
    ids = first_ids(event_id for one in run for event_id in one.event_ids)
    return Chain(
        cluster_id=record.cluster_id,
        node_id=record.node_id,
        kind="tail_latency",
        descriptor=f"tail-{op}",
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        severity=_severity(total_ns / SECOND_NS / max(span.seconds, 1.0)),
        summary=f"{op} {tail}: {cause}",
        root_cause=f"{cause}; {counted} in the whole recording ({TOGETHER})",
        explanation=_explanation(op, span, total_ns, here, rest),
        recommendations=(ADVICE,),
        op=op,
        p99_ns=p99_ns,
        p50_ns=p50_ns,
        usual_ns=middle(rest) if rest else None,
        timeline=(Line("CUDA", op, tail, p99_ns), Line("CUDA", op, f"{count} calls", total_ns)),
        evidence=(Statement(fact, count, "calls", ids),),
        job_id=record.job_id,
    )


def _severity(share: float) -> Severity:
    return "HIGH" if share >= _SEVERE else "MEDIUM" if share >= _SMALL else "LOW"


def _ratio(p99_ns: int, p50_ns: int) -> str:
    return f"{p99_ns / p50_ns:.1f}" if p50_ns else "?"


def _explanation(op: str, span: Span, total_ns: int, here: list[Calls], rest: list[Calls]) -> str:
    usual = f" In the rest of the recording its median is {duration_text(middle(rest))}." if rest else ""
    return (
        f"For {duration_text(span.end_ns - span.start_ns)}, {op} took {duration_text(total_ns)}; it waits for the GPU "
        f"to have done all it was asked for. {sum(one.count for one in here)} calls in these minutes.{usual}"
    )
