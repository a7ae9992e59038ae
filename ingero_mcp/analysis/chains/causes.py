"""Everything that can be seen together with trouble on a node, in the order in which it is told."""

from __future__ import annotations

from typing import Final

from ingero_mcp.analysis.chains.allocator import allocator
from ingero_mcp.analysis.chains.bigger_copies import bigger_copies
from ingero_mcp.analysis.chains.cause import Cause, Reader, Trouble
from ingero_mcp.analysis.chains.cpu_busy import cpu_busy
from ingero_mcp.analysis.chains.cpu_taken import cpu_taken
from ingero_mcp.analysis.chains.memory import large_allocations, memory
from ingero_mcp.analysis.chains.network import network
from ingero_mcp.analysis.chains.programs import programs
from ingero_mcp.analysis.chains.record import Record
from ingero_mcp.analysis.chains.storage import storage
from ingero_mcp.analysis.severity import Severity

READERS: Final[tuple[Reader, ...]] = (
    allocator,
    cpu_busy,
    cpu_taken,
    bigger_copies,
    storage,
    memory,
    large_allocations,
    network,
    programs,
)
_SEVERE: Final = 0.1  # of the time of the stretch was lost

TOGETHER: Final = "seen in the same time, which does not prove that one made the other"


def causes_of(record: Record, trouble: Trouble) -> tuple[Cause, ...]:
    """What was seen together with it; the strongest first, and what is only more work last."""
    found = [cause for read in READERS if (cause := read(record, trouble))]
    return tuple(sorted(found, key=lambda one: (one.is_work, -one.strength, not one.raises)))


def root_cause(causes: tuple[Cause, ...]) -> str:
    """All of them in one sentence."""
    return "; ".join(cause.words for cause in causes)


def in_short(causes: tuple[Cause, ...]) -> str:
    """The first of them, and how many more there are, for one line."""
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    return f"{causes[0].short or causes[0].words}{more}"


def severity_of(causes: tuple[Cause, ...], lost: float) -> Severity:
    """`lost` is the share of the time of the stretch that was lost. HIGH takes a host in trouble and much time lost,
    LOW is what merely happened in the same time or is explained by more work."""
    strength = max((cause.strength for cause in causes), default=0.0)
    if any(cause.raises for cause in causes) and lost >= _SEVERE:
        return "HIGH"
    return "MEDIUM" if strength > 0 or any(cause.raises for cause in causes) else "LOW"
