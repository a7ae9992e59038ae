"""Bursts: slow calls that follow each other closely enough to have cost a material part of their time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ingero_mcp.analysis.chains.chain import JOINED_NS
from ingero_mcp.analysis.chains.record import BLOCK_NS, CELL_NS, Calls, Slow, Span

TAIL_RATIO: Final = 3.0
"""How many times the median the 99th percentile has to be, and a call to be slow."""

LEAST_CALLS: Final = 10
_LEAST_SLOW: Final = 3
_LEAST_EXCESS_NS: Final = 1_000_000
_MATERIAL: Final = 0.05  # of the time of the burst, per process


@dataclass(frozen=True, slots=True)
class Burst:
    """The slow calls of one operation, from the start of the first to the end of the last."""

    op: str
    slow: tuple[Slow, ...]

    @property
    def span(self) -> Span:
        """From the first to the last."""
        return Span(min(one.start_ns for one in self.slow), max(one.end_ns for one in self.slow))

    @property
    def pids(self) -> frozenset[int]:
        """The processes."""
        return frozenset(one.pid for one in self.slow if one.pid is not None)

    @property
    def excess_ns(self) -> int:
        """How much longer than usual the calls were in all."""
        return sum(one.excess_ns for one in self.slow)

    @property
    def lost(self) -> float:
        """The share of its time that one of its processes lost on average, of a second at least."""
        return self._share(max(self.span.seconds, 1.0))

    @property
    def is_material(self) -> bool:
        """Whether it is worth a word."""
        enough = sum(one.count for one in self.slow) >= _LEAST_SLOW and self.excess_ns >= _LEAST_EXCESS_NS
        return enough and self._share(self.span.seconds) >= _MATERIAL

    def _share(self, seconds: float) -> float:
        return self.excess_ns / 1e9 / (seconds * max(len(self.pids), 1)) if seconds else 1.0


def has_tail(calls: Calls) -> bool:
    """Whether a block of calls has a long tail."""
    return calls.count >= LEAST_CALLS and calls.p50_ns > 0 and calls.p99_ns >= TAIL_RATIO * calls.p50_ns


def bursts(slow: Iterable[Slow]) -> list[Burst]:
    """The material bursts of each operation; those that come back soon are one."""
    by_op: dict[str, list[Slow]] = {}
    for one in sorted(slow, key=lambda one: (one.op, one.start_ns)):
        by_op.setdefault(one.op, []).append(one)
    found = []
    for op, of_op in by_op.items():
        material = [burst for run in _runs(of_op, CELL_NS) if (burst := Burst(op, tuple(run))).is_material]
        parts = [one for burst in material for one in burst.slow]
        found += [Burst(op, tuple(run)) for run in _runs(parts, JOINED_NS)]
    return sorted(found, key=lambda burst: burst.span.start_ns)


def _runs(slow: list[Slow], gap_ns: int) -> list[list[Slow]]:
    runs: list[list[Slow]] = []
    end_ns = 0
    for one in slow:
        if not runs or one.start_ns > end_ns + gap_ns:
            runs.append([])
            end_ns = one.end_ns
        runs[-1].append(one)
        end_ns = max(end_ns, one.end_ns)
    return runs


def blocks_of(burst: Burst) -> Span:
    """The whole minutes that it touches."""
    return burst.span.cells(BLOCK_NS)
