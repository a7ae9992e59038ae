"""The slow calls had more to do: they copy or allocate more than the others."""

from __future__ import annotations

from statistics import median
from typing import Final

from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.record import Record, first_ids
from ingero_mcp.analysis.findings import Statement

_MUCH_MORE: Final = 4.0


def bigger_copies(record: Record, trouble: Trouble) -> Cause | None:
    """Whether the slow calls are those with many bytes."""
    known = [one.p50_bytes for one in trouble.slow if one.p50_bytes]
    if not known or not trouble.usual_bytes or median(known) < _MUCH_MORE * trouble.usual_bytes:
        return None
    text = f"the slow calls are also the big ones: {_size(median(known))} each, against {_size(trouble.usual_bytes)}"
    ids = first_ids(event_id for one in trouble.slow for event_id in one.event_ids)
    return Cause(
        words=text,
        strength=0.0,
        statements=(Statement(text, float(median(known)), "bytes", ids),),
        advice=("copy from pinned memory, so that big copies do not hold up the thread that asks for them",),
        is_work=True,
    )


def _size(count: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} bytes"
