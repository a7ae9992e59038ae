"""A node as the tests of chains tell of it: ten minutes, a process that launches kernels, a stretch of slow calls."""

from __future__ import annotations

from typing import Any

from ingero_mcp.analysis.chains.chain import Chain
from ingero_mcp.analysis.chains.record import BLOCK_NS, SECOND_NS, Away, Calls, Load, Rate, Record, Slow, Span
from ingero_mcp.analysis.chains.rules import find_chains

NOON = 1_796_040_000_000_000_000
MS = 1_000_000
WHOLE = Span(NOON, NOON + 600 * SECOND_NS)
LAUNCH = "cudaLaunchKernel"
PID = 100


def at(seconds: float) -> int:
    """So many seconds after noon."""
    return NOON + round(seconds * SECOND_NS)


def slow(begin_s: float, **values: Any) -> Slow:
    """Two seconds in which 40 launches took 20 ms each."""
    given: dict[str, Any] = {
        "op": LAUNCH,
        "pid": PID,
        "process": "python3",
        "start_ns": at(begin_s),
        "end_ns": at(begin_s + 2),
        "count": 40,
        "excess_ns": 800 * MS,
        "longest_ns": 20 * MS,
        "event_ids": ("n1:7",),
    }
    return Slow(**given | values)


def calls(op: str = LAUNCH, source: str = "cuda", **values: Any) -> tuple[Calls, ...]:
    """1000 calls a minute, of 10 us; in the minutes of a slow stretch the 99th percentile is 20 ms."""
    given = {"count": 1000, "p50_ns": 10_000, "p99_ns": 20 * MS} | values
    return tuple(Calls(source, op, NOON + minute * BLOCK_NS, **given) for minute in range(10))


def away(begin_s: float, **values: Any) -> Away:
    """Five seconds in which backup took the CPU for 700 ms in all."""
    given: dict[str, Any] = {
        "pid": PID,
        "process": "python3",
        "cell_ns": at(begin_s),
        "state": "runqueue",
        "by": "backup",
        "by_pid": 9,
        "count": 40,
        "off_cpu_ns": 700 * MS,
        "event_id": "n1:8",
    }
    return Away(**given | values)


def loads(begin_s: float, end_s: float, **busy: Any) -> tuple[Load, ...]:
    """A sample a second: calm, but within the stretch as `busy` says."""
    calm: dict[str, Any] = {"cpu_pct": 20.0, "mem_pct": 30.0, "swap_mb": 0, "load_avg": 1.0}
    return tuple(Load(at(second), **calm | (busy if begin_s <= second < end_s else {})) for second in range(600))


def rates(*counts: int, pid: int = PID) -> tuple[Rate, ...]:
    """So many calls in each cell of five seconds from noon on."""
    return tuple(
        Rate(pid, "python3", Span(at(5 * place), at(5 * place + 5)), 5 * SECOND_NS, count, event_id="n1:9")
        for place, count in enumerate(counts)
    )


def record(**values: Any) -> Record:
    """The node n1, with what `values` say."""
    given: dict[str, Any] = {
        "cluster_id": "c1",
        "node_id": "n1",
        "span": WHOLE,
        "seen": WHOLE,
        "cores": 4,
        "calls": calls(),
        "lives": {PID: WHOLE},
    }
    return Record(**given | values)


def only(found: tuple[Chain, ...], kind: str) -> Chain:
    """The one chain of that kind."""
    (chain,) = [one for one in found if one.kind == kind]
    return chain


def kinds(given: Record) -> list[str]:
    """The kinds of chains that the rules find, in order."""
    return [one.kind for one in find_chains(given)]
