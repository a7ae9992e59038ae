"""Gaps: what a rank did between its collectives in the steps in which it was late, beside those in which it was not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A step of a rank on its own clock: from its last entry into a collective of the step before to that of this step.

    Late ones are of the culprit; the others are its other steps, or the same steps of its peers where it has no others.
    """

    rank: int
    begin_ns: int
    until_ns: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class Activity:
    """Events of one kind: their mean time in ns and mean number in a late step (`late_*`) and in another (`usual_*`).

    `detail` is what tells it from others of its name (the state of a thread, read or write, the program), `by` who took
    the CPU or did it. `is_own` says that it was the rank's own process.
    """

    name: str
    detail: str
    by: str
    is_own: bool
    late_ns: float
    usual_ns: float
    late_count: float
    usual_count: float
    event_ids: tuple[str, ...] = ()

    @property
    def excess_ns(self) -> float:
        """By how much longer it took in a late step."""
        return max(self.late_ns - self.usual_ns, 0.0)

    @property
    def excess_count(self) -> float:
        """By how many more of it there were in a late step."""
        return max(self.late_count - self.usual_count, 0.0)


@dataclass(frozen=True, slots=True)
class Parts:
    """By how much longer than in its other steps the thread was on a CPU, blocked, and waiting for a CPU: nanoseconds.

    None where it was not recorded.
    """

    cpu_ns: float | None = None
    blocked_ns: float | None = None
    runq_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """When it happens and to whom, as far as that says something about why."""

    share_since_onset: float
    is_from_start: bool
    is_in_a_row: bool
    recurs_in_steps: bool
    recurs_in_time: bool
    is_whole_host: bool
    is_in_turn: bool
    is_rank_zero: bool
    is_gpu: bool
    """It is the GPU's own computing that takes longer."""
    is_growing: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Everything that the rules about causes look at, of one incident."""

    lateness_ns: float
    parts: Parts
    activities: tuple[Activity, ...]
    pattern: Pattern
    throttle: str = ""
    """What the counters of the culprit's GPU say, and its peers' do not."""

    def of(self, names: Iterable[str], *details: str, is_own: bool | None = None) -> tuple[Activity, ...]:
        """The activities of these names, with one of these details if any are given."""
        wanted = frozenset(names)
        return tuple(
            one
            for one in self.activities
            if one.name in wanted
            and (not details or one.detail in details)
            and (is_own is None or one.is_own == is_own)
        )
