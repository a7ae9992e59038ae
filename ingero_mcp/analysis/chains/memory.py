"""The host was short of memory, or a lot of it was asked for."""

from __future__ import annotations

from typing import Final

from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.chain import Line
from ingero_mcp.analysis.chains.record import BLOCK_NS, CELL_NS, Record
from ingero_mcp.analysis.chains.usual import against_rest
from ingero_mcp.analysis.findings import Statement

_SHORT_PCT: Final = 95.0
_SWAPPED_MB: Final = 100  # more in use at the end of the stretch than before: swap that lies there says nothing
_LARGE: Final = 1 << 30


def memory(record: Record, trouble: Trouble) -> Cause | None:
    """Memory in use above 95 %, or swap that grows meanwhile."""
    span = trouble.span.cells(CELL_NS)
    here = [one for one in record.loads if span.touches(one.at_ns, one.at_ns)]
    used = max((one.mem_pct for one in here if one.mem_pct is not None), default=0.0)
    before = [one.swap_mb for one in record.loads if one.swap_mb is not None and one.at_ns < span.start_ns]
    within = [one.swap_mb for one in here if one.swap_mb is not None]
    grown = max(within) - (before[-1] if before else within[0]) if within else 0
    if used <= _SHORT_PCT and grown < _SWAPPED_MB:
        return None
    words = [f"{used:.0f}% of the host's memory in use"] if used > _SHORT_PCT else []
    words += [f"{grown} MB swapped out meanwhile"] if grown >= _SWAPPED_MB else []
    text = " and ".join(words)
    return Cause(
        words=text,
        strength=0.0,
        statements=(Statement(text, used or None, "%"),),
        lines=(Line("SYSTEM", "memory", text),),
        advice=("find out who uses the host's memory: cached data, pinned buffers, too many workers",),
        raises=True,
    )


def large_allocations(record: Record, trouble: Trouble) -> Cause | None:
    """More than 1 GiB of host memory was allocated in these minutes, more than usual."""
    taken = against_rest(record.allocated.items(), BLOCK_NS, trouble.span, record.seen)
    if taken.amount <= _LARGE or not taken.is_more:
        return None
    text = f"{taken.amount / 1e9:.3g} GB of host memory allocated in these minutes, {taken.words()}"
    return Cause(
        words=text,
        strength=0.0,
        statements=(Statement(text, taken.amount, "bytes"),),
        lines=(Line("HOST", "mm_page_alloc", text),),
        advice=("allocate and pin host buffers once and use them again",),
    )
