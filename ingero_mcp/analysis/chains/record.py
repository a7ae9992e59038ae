"""What a node recorded, as far as chains are made of it: summed in blocks of a minute and cells of five seconds.

Blocks and cells are aligned to the clock and always whole, so that what is found in one does not depend on the window
that was asked for. A minute is also how an Ingero agent counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

SECOND_NS: Final = 10**9
CELL_NS: Final = 5 * SECOND_NS
BLOCK_NS: Final = 60 * SECOND_NS

TRACERS: Final = frozenset(("ingero", "ingero-ebpf", "ingero-trace"))
"""Processes that record: what they write and wait for is not the job's trouble."""


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open stretch of time on the node's clock."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(self.end_ns - self.start_ns, 0) / SECOND_NS

    def touches(self, start_ns: int, end_ns: int) -> bool:
        """Whether another stretch overlaps this one; a moment (start = end) does if it lies within."""
        return start_ns < max(self.end_ns, self.start_ns + 1) and max(end_ns, start_ns + 1) > self.start_ns

    def cells(self, width_ns: int) -> Span:
        """The whole cells of that width that it touches."""
        end = max(self.end_ns, self.start_ns + 1)
        return Span(self.start_ns - self.start_ns % width_ns, end + -end % width_ns)


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one operation in one block, those counted in that were not kept one by one."""

    source: str
    op: str
    block_ns: int
    count: int
    p50_ns: int
    p99_ns: int
    p50_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """The slow calls of one operation in one process and one cell, without those of a cold start.

    `excess_ns` is how much longer than usual they were in all; `off_cpu_ns` how long their thread was off the CPU while
    they ran, not counting where it is known to have blocked by its own will.
    """

    op: str
    pid: int | None
    process: str
    start_ns: int
    end_ns: int
    count: int
    excess_ns: int
    longest_ns: int
    p50_bytes: int | None = None
    off_cpu_ns: int = 0
    event_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocations:
    """The calls of one operation of the GPU's allocator in one process and one second."""

    op: str
    pid: int | None
    process: str
    start_ns: int
    end_ns: int
    count: int
    total_ns: int
    longest_ns: int
    event_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Away:
    """How often and how long threads of a process that calls the GPU were off the CPU in one cell, by state and taker.

    `state` is empty where the recorder did not say why; then the time is capped, since threads also sleep.
    """

    pid: int
    process: str
    cell_ns: int
    state: str
    by: str
    by_pid: int | None
    count: int
    off_cpu_ns: int
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class Switches:
    """How often a process was switched to in one block, and how long it had been off the CPU, sleep included."""

    pid: int
    process: str
    block_ns: int
    count: int
    off_cpu_ns: int
    longest_ns: int


@dataclass(frozen=True, slots=True)
class Io:
    """Block or file operations of one process in one cell."""

    op: str
    pid: int | None
    process: str
    cell_ns: int
    count: int
    total_ns: int
    longest_ns: int
    bytes: int
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class Starts:
    """How often a program was started in one cell."""

    process: str
    cell_ns: int
    count: int
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """One sample of the load of the host."""

    at_ns: int
    cpu_pct: float | None
    mem_pct: float | None
    swap_mb: int | None
    load_avg: float | None


@dataclass(frozen=True, slots=True)
class Moment:
    """A single event that means something; `about` is what it is about: a victim, a pod, a return code."""

    name: str
    at_ns: int
    pid: int | None
    process: str
    about: str
    event_id: str


@dataclass(frozen=True, slots=True)
class Rate:
    """How often a process called the GPU in the part of a bin, `width_ns` wide, in which it lived.

    `last_ns` is when the last call that was kept ended.
    """

    pid: int
    process: str
    span: Span
    width_ns: int
    count: int
    last_ns: int | None = None
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class Retransmits:
    """Segments that TCP sent again in one block."""

    block_ns: int
    count: int
    event_id: str = ""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """How long the threads of a cgroup were off the CPU in one window of an agent, sleep included."""

    cgroup_id: int
    name: str
    span: Span
    p99_ns: int


@dataclass(frozen=True, slots=True)
class Record:
    """All of it, of one node. `span` is what was read, `seen` from the first to the last event in it.

    `lives` says until when each process that calls the GPU was seen to do anything; `children` names, by process, those
    that it has started. `cgroups` are those of processes that call the GPU.
    """

    cluster_id: str
    node_id: str
    span: Span
    seen: Span
    job_id: str | None = None
    cores: int | None = None
    calls: tuple[Calls, ...] = ()
    slow: tuple[Slow, ...] = ()
    allocations: tuple[Allocations, ...] = ()
    away: tuple[Away, ...] = ()
    switches: tuple[Switches, ...] = ()
    io: tuple[Io, ...] = ()
    starts: tuple[Starts, ...] = ()
    loads: tuple[Load, ...] = ()
    moments: tuple[Moment, ...] = ()
    rates: tuple[Rate, ...] = ()
    retransmits: tuple[Retransmits, ...] = ()
    scheduled: tuple[Scheduled, ...] = ()
    allocated: Mapping[int, int] = field(default_factory=dict)
    """Bytes of host memory that were allocated, by block."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """How often each operation of the GPU's allocator happened in all."""
    lives: Mapping[int, Span] = field(default_factory=dict)
    children: Mapping[int, frozenset[int]] = field(default_factory=dict)
    cgroups: frozenset[int] = frozenset()

    def callers(self) -> frozenset[int]:
        """The processes that call the GPU."""
        return frozenset(self.lives)


def named(process: str, pid: int | None) -> str:
    """A process as sentences name it: `python3 (pid 2233)`."""
    if pid is None:
        return process or "an unknown process"
    return f"{process} (pid {pid})" if process else f"pid {pid}"


def first_ids(ids: Iterable[str], most: int = 4) -> tuple[str, ...]:
    """The first few ids of events, each once."""
    return tuple(dict.fromkeys(one for one in ids if one))[:most]
