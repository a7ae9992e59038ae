"""TCP had to repeat itself."""

from __future__ import annotations

from typing import Final

from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.chain import Line
from ingero_mcp.analysis.chains.record import BLOCK_NS, Record, first_ids
from ingero_mcp.analysis.chains.usual import against_rest
from ingero_mcp.analysis.findings import Statement

_LEAST: Final = 6
_TIMEOUT_NS: Final = 200_000_000  # the least time that a repeated segment of an idle connection costs on Linux
_MATERIAL: Final = 0.2


def network(record: Record, trouble: Trouble) -> Cause | None:
    """Retransmits that could have cost a material part of what was lost. A single call of the GPU does not wait for the
    network, so only calls that became rare can be explained by it."""
    if trouble.op:
        return None
    amounts = [(one.block_ns, one.count) for one in record.retransmits]
    sent = against_rest(amounts, BLOCK_NS, trouble.span, record.seen)
    if sent.amount < _LEAST or not sent.is_more or trouble.share(sent.amount * _TIMEOUT_NS) < _MATERIAL:
        return None
    within = trouble.span.cells(BLOCK_NS)
    ids = first_ids(one.event_id for one in record.retransmits if within.touches(one.block_ns, one.block_ns + BLOCK_NS))
    text = f"{int(sent.amount)} TCP retransmits, {sent.words()}"
    return Cause(
        words=text,
        strength=0.0,
        statements=(Statement(text, sent.amount, "retransmits", ids),),
        lines=(Line("NET", "tcp_retransmit", text),),
        advice=("look at the links and the switch ports of this host: drops, errors, congestion",),
    )
