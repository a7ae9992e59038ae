"""What was seen in the same time as trouble: the nouns that the readers of signs and the rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ingero_mcp.analysis.chains.chain import Line
from ingero_mcp.analysis.chains.record import Record, Slow, Span
from ingero_mcp.analysis.findings import Statement


@dataclass(frozen=True, slots=True)
class Trouble:
    """A stretch in which processes lost time: the operation that was slow (empty: all of them), and how much time."""

    span: Span
    pids: frozenset[int]
    excess_ns: int
    op: str = ""
    slow: tuple[Slow, ...] = ()
    usual_bytes: int | None = None

    @property
    def off_cpu_ns(self) -> int:
        """How long the threads were off the CPU inside the slow calls."""
        return sum(one.off_cpu_ns for one in self.slow)

    def share(self, ns: float) -> float:
        """What part of the lost time a time is, from 0 to 1."""
        return min(ns / self.excess_ns, 1.0) if self.excess_ns > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that was seen together with trouble; `words` are a part of a sentence, `short` the same in fewer.

    `strength` is the share of the lost time that it covers, 0 where it only happened in the same time. `raises` marks
    what makes trouble severe. `is_work` says that the calls had more to do, which is no fault of the node.
    """

    words: str
    strength: float
    statements: tuple[Statement, ...] = ()
    lines: tuple[Line, ...] = ()
    advice: tuple[str, ...] = ()
    raises: bool = False
    is_work: bool = False
    short: str = ""


Reader: TypeAlias = Callable[[Record, Trouble], "Cause | None"]
"""Reads one kind of cause off what a node recorded; None if it is not there, or no more than usual."""
