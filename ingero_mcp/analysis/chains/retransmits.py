"""TCP repeats itself often, and more often than usual on this node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ingero_mcp.analysis.chains.chain import JOINED_NS, Chain, Line
from ingero_mcp.analysis.chains.record import BLOCK_NS, Record, Retransmits, Span, first_ids
from ingero_mcp.analysis.chains.usual import against_rest
from ingero_mcp.analysis.findings import Statement

_LEAST: Final = 10  # in a minute
_MANY: Final = 100
_OFTEN: Final = 3.0  # times the usual rate
_ADVICE: Final = (
    "look at the links and switch ports of this host: drops, errors, congestion; and at its peers' retransmits"
)


def retransmits(record: Record) -> Iterator[Chain]:
    """Minutes with more than ten retransmits and three times as many as usual; HIGH from a hundred in a minute on where
    something on the GPU was slow in the same time, LOW where nothing was."""
    run: list[Retransmits] = []
    for one in sorted(record.retransmits, key=lambda one: one.block_ns):
        if one.count <= _LEAST:
            continue
        if run and one.block_ns > run[-1].block_ns + BLOCK_NS + JOINED_NS:
            yield from _chain(record, run)
            run = []
        run.append(one)
    if run:
        yield from _chain(record, run)


def _chain(record: Record, run: list[Retransmits]) -> Iterator[Chain]:
    span = Span(run[0].block_ns, run[-1].block_ns + BLOCK_NS)
    sent = against_rest([(one.block_ns, one.count) for one in record.retransmits], BLOCK_NS, span, record.seen)
    if sent.times is not None and sent.times < _OFTEN:
        return
    worst = max(one.count for one in run)
    slow = sorted({one.op for one in record.slow if span.touches(one.start_ns, one.end_ns)})
    beside = (
        f"slow in the same minutes: {', '.join(slow)}" if slow else "no call of the GPU was slow in the same minutes"
    )
    text = f"{int(sent.amount)} TCP retransmits, {worst} in the worst minute, {sent.words()}"
    yield Chain(
        cluster_id=record.cluster_id,
        node_id=record.node_id,
        kind="tcp_retransmit",
        descriptor="tcp-retransmit",
        start_ns=span.start_ns,
        end_ns=min(span.end_ns, max(record.seen.end_ns, span.start_ns)),
        severity=("HIGH" if worst > _MANY else "MEDIUM") if slow else "LOW",
        summary=text,
        root_cause=f"the network of this host loses or delays segments; {beside}",
        explanation=f"{text}. A segment is sent again after 200 ms or more; whoever waits for it waits as long.",
        recommendations=(_ADVICE,),
        op="tcp_retransmit",
        timeline=(Line("NET", "tcp_retransmit", text),),
        evidence=(Statement(text, sent.amount, "retransmits", first_ids(one.event_id for one in run)),),
        job_id=record.job_id,
    )
