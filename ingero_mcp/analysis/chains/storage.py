"""Disks and files were busy with what somebody else than the recorder wanted."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.chain import Line
from ingero_mcp.analysis.chains.record import CELL_NS, TRACERS, Io, Record, first_ids, named
from ingero_mcp.analysis.chains.usual import against_rest
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import duration_text, listed

_MATERIAL: Final = 0.2  # of the lost time
_SLOW_NS: Final = 50_000_000  # one operation that long makes trouble severe


def storage(record: Record, trouble: Trouble) -> Cause | None:
    """Time in block or file operations that is material beside what was lost, and more than usual."""
    cells = trouble.span.cells(CELL_NS)
    known = [one for one in record.io if one.process not in TRACERS]
    here = [one for one in known if cells.touches(one.cell_ns, one.cell_ns + CELL_NS)]
    total_ns = sum(one.total_ns for one in here)
    time = against_rest([(one.cell_ns, one.total_ns) for one in known], CELL_NS, trouble.span, record.seen)
    if not here or trouble.share(total_ns) < _MATERIAL or not time.is_more:
        return None
    longest = max(one.longest_ns for one in here)
    count = sum(one.count for one in here)
    who = _who(here)
    size = sum(one.bytes for one in here) / 1e6
    what = (
        f"{count} block and file operations, {duration_text(total_ns)}, {size:.3g} MB, longest {duration_text(longest)}"
    )
    is_own = any(one.pid in trouble.pids and one.total_ns >= _MATERIAL * total_ns for one in here)
    ids = first_ids(one.event_id for one in sorted(here, key=lambda one: -one.longest_ns))
    return Cause(
        words=f"{listed(who)} used the disk: {what}, {time.words()}",
        strength=trouble.share(total_ns) if is_own else 0.0,
        statements=(Statement(f"{what}, by {listed(who)}, {time.words()}", total_ns / 1e6, "ms", ids),),
        lines=(Line("IO", "block_io", what, total_ns),),
        advice=(
            f"keep what {who[0]} reads and writes off the disk of the job, or put it in memory (/dev/shm, page cache)",
        ),
        raises=is_own and longest >= _SLOW_NS,
    )


def _who(here: list[Io]) -> list[str]:
    most: Counter[str] = Counter()
    for one in here:
        most[named(one.process, one.pid)] += one.total_ns
    return [who for who, _ in most.most_common(3)]
