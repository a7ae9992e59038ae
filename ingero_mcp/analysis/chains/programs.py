"""Programs were started on the host: compilers, timers, monitoring."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.chain import Line
from ingero_mcp.analysis.chains.record import CELL_NS, TRACERS, Record, first_ids
from ingero_mcp.analysis.chains.usual import against_rest
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import listed

_LEAST: Final = 3
_OFTEN: Final = 3.0  # times the usual rate


def programs(record: Record, trouble: Trouble) -> Cause | None:
    """Three or more starts in the same seconds, and three times as many as usual."""
    known = [one for one in record.starts if one.process not in TRACERS]
    started = against_rest([(one.cell_ns, one.count) for one in known], CELL_NS, trouble.span, record.seen)
    if started.amount < _LEAST or (started.times is not None and started.times < _OFTEN):
        return None
    cells = trouble.span.cells(CELL_NS)
    here = [one for one in known if cells.touches(one.cell_ns, one.cell_ns + CELL_NS)]
    most: Counter[str] = Counter()
    for one in here:
        most[one.process or "unknown"] += one.count
    names = listed([f"{name} x{count}" for name, count in most.most_common(3)])
    text = f"{int(started.amount)} programs were started ({names}), {started.words()}"
    return Cause(
        words=text,
        strength=0.0,
        statements=(Statement(text, started.amount, "programs", first_ids(one.event_id for one in here)),),
        lines=(Line("HOST", "process.exec", f"{int(started.amount)} programs were started: {names}"),),
        advice=(f"compare the time with cron, systemd timers and compilers: {most.most_common(1)[0][0]}",),
    )
