"""How much more there is of something than usual: its rate in a stretch against that in the rest of the record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ingero_mcp.analysis.chains.record import Span

_LEAST_REST_S: Final = 1.0
_LEAST_REST: Final = 0.2  # of the stretch: what is left at its edges is no calm to compare with


@dataclass(frozen=True, slots=True)
class Against:
    """An amount in a stretch of time, per second there, and per second in the calm rest; None if there is no rest."""

    amount: float
    per_s: float
    usual_per_s: float | None

    @property
    def times(self) -> float | None:
        """How many times the usual rate it is; None where nothing is usual, or nothing is known of it."""
        return self.per_s / self.usual_per_s if self.usual_per_s else None

    @property
    def is_more(self) -> bool:
        """Whether it is clearly more than usual, or there is nothing to compare it with."""
        return self.amount > 0 and (self.usual_per_s is None or self.per_s >= 1.5 * self.usual_per_s)

    def words(self) -> str:
        """`15x the usual rate`, as a part of a sentence."""
        if self.usual_per_s is None:
            return "with nothing calm to compare with"
        if self.times is None:
            return "none in the rest of the recording"
        return f"{self.times:.3g}x its rate in the rest of the recording"


def against_rest(amounts: Iterable[tuple[int, float]], width_ns: int, inside: Span, seen: Span) -> Against:
    """What lies in the cells (start, amount) that touch `inside`, against all other cells of `seen`."""
    within, whole = inside.cells(width_ns), seen
    here = rest = 0.0
    for start_ns, amount in amounts:
        if within.touches(start_ns, start_ns + width_ns):
            here += amount
        else:
            rest += amount
    covered = Span(max(within.start_ns, whole.start_ns), min(within.end_ns, whole.end_ns)).seconds
    calm_s = whole.seconds - covered
    usual = rest / calm_s if calm_s >= max(_LEAST_REST_S, _LEAST_REST * covered) else None
    return Against(here, here / covered if covered else here, usual)
