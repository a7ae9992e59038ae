"""Signs: facts about a gap, each a number from 0 (not so) to 1 (all of the lateness), with the sentence that says it.

A sign that cannot be seen in what was recorded is None, which is not the same as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.gap import Activity, Gap
from ingero_mcp.analysis.words import duration_text, listed
from ingero_mcp.cells import escaped

ALLOCATIONS: Final = (
    "cudaMalloc",
    "cudaFree",
    "cudaMallocAsync",
    "cudaFreeAsync",
    "cudaMallocManaged",
    "cudaHostAlloc",
)
COLLECTIONS: Final = ("python.gc",)
OFF_CPU: Final = ("sched.offcpu",)
STARTS: Final = ("process.exec",)
IO: Final = ("file.io", "block.io")
COMPILERS: Final = frozenset(
    ("cc1", "cc1plus", "gcc", "g++", "clang", "clang++", "nvcc", "cicc", "ptxas", "cudafe++", "nvlink", "ld", "ninja")
)

NAMES: Final = (*ALLOCATIONS, *COLLECTIONS, *OFF_CPU, *STARTS, *IO)
"""The events that signs are read from."""

_MOST: Final = 3  # names in a sentence


@dataclass(frozen=True, slots=True)
class Sign:
    """How much of it there is, and the sentence that says so where there is any."""

    strength: float
    statement: Statement | None = None


Read: TypeAlias = Callable[[Gap], Sign | None]


def _share(ns: float, gap: Gap) -> float:
    return min(ns / gap.lateness_ns, 1.0) if gap.lateness_ns > 0 else 0.0


def _part(which: str, words: str) -> Read:
    def read(gap: Gap) -> Sign | None:
        ns: float | None = getattr(gap.parts, which)
        if ns is None:
            return None
        text = f"in the late steps its thread {words} {duration_text(max(ns, 0.0))} longer than in its others"
        return Sign(_share(max(ns, 0.0), gap), Statement(text, ns / 1e6, "ms"))

    return read


def _time(names: tuple[str, ...], details: tuple[str, ...], words: str, *, is_own: bool | None) -> Read:
    def read(gap: Gap) -> Sign | None:
        found = gap.of(names, *details, is_own=is_own)
        ns = sum(one.excess_ns for one in found)
        if ns <= 0:
            return Sign(0.0)
        count = sum(one.late_count for one in found)
        text = f"{words}: {_named(found)}, {count:.3g} in a late step, {duration_text(ns)} longer than in others"
        return Sign(_share(ns, gap), Statement(text, ns / 1e6, "ms", _ids(found)))

    return read


def _number(names: tuple[str, ...], words: str, *, are_compilers: bool) -> Read:
    def read(gap: Gap) -> Sign | None:
        found = tuple(one for one in gap.of(names) if (one.by in COMPILERS) == are_compilers and one.excess_count > 0)
        count = sum(one.excess_count for one in found)
        if not count:
            return Sign(0.0)
        text = f"{words}: {_named(found)}, {count:.2g} more in a late step than in others"
        return Sign(min(count, 1.0), Statement(text, count, "per step", _ids(found)))

    return read


def _named(found: tuple[Activity, ...]) -> str:
    most = sorted(found, key=lambda one: -(one.excess_ns or one.excess_count))
    return listed(list(dict.fromkeys(escaped(_who(one)) for one in most))[:_MOST])


def _who(one: Activity) -> str:
    """Who did it, where that is not the rank itself."""
    return one.by if one.by and one.name in (*OFF_CPU, *STARTS, *IO) else one.name


def _ids(found: tuple[Activity, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(event_id for one in found for event_id in one.event_ids))[:4]


def _so(which: str) -> Read:
    return lambda gap: Sign(float(getattr(gap.pattern, which)))


def _throttled(gap: Gap) -> Sign | None:
    return Sign(1.0, Statement(gap.throttle)) if gap.throttle else Sign(0.0)


SIGNS: Final[Mapping[str, Read]] = {
    "on CPU": _part("cpu_ns", "was on a CPU"),
    "blocked": _part("blocked_ns", "was blocked"),
    "waiting for a CPU": _part("runq_ns", "waited for a CPU"),
    "stopped": _time(OFF_CPU, ("stopped",), "it was stopped by a signal", is_own=True),
    "CPU taken": _time(OFF_CPU, ("runqueue",), "its CPU was taken", is_own=True),
    "allocator": _time(ALLOCATIONS, (), "its allocator", is_own=True),
    "collector": _time(COLLECTIONS, (), "Python's garbage collector ran", is_own=True),
    "it writes": _time(IO, ("write", "fsync"), "it wrote", is_own=True),
    "its host reads": _time(IO, ("read",), "reads of data", is_own=None),
    "compilers start": _number(STARTS, "compilers were started", are_compilers=True),
    "programs start": _number(STARTS, "programs were started on its host", are_compilers=False),
    "GPU throttled": _throttled,
    "the GPU itself": _so("is_gpu"),
    "steady": lambda gap: Sign(gap.pattern.share_since_onset),
    "from the first step": _so("is_from_start"),
    "once": _so("is_in_a_row"),
    "every n steps": _so("recurs_in_steps"),
    "every n seconds": _so("recurs_in_time"),
    "growing": _so("is_growing"),
    "whole host": _so("is_whole_host"),
    "ranks in turn": _so("is_in_turn"),
    "rank 0": _so("is_rank_zero"),
}
"""Every sign, by the name that the rules use."""
