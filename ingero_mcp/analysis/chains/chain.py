"""A causal chain: what was slow or stuck on a node, since when, and what was seen in the same time. The noun."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.severity import Severity, rank_of

Kind: TypeAlias = Literal[
    "tail_latency",
    "throughput_drop",
    "oom",
    "tcp_retransmit",
    "pod_restart",
    "pod_eviction",
    "noisy_neighbour",
    "cuda_graph",
]

JOINED_NS: Final = 120 * 10**9
"""Trouble that comes back within this time is the same chain; later it is another one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chain's timeline: a layer (SYSTEM, HOST, IO, NET, CUDA, DRIVER, GRAPH), what, and for how long."""

    layer: str
    op: str
    detail: str
    duration_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """One incident on one node, on that node's clock.

    `descriptor` says what it is about (tail-cudaMemcpyAsync), and with the node and the start makes the id. `p99_ns`
    and `p50_ns` are those of `op` in the minutes of the chain; `usual_ns` is its median in the others, None where there
    are none. `evidence` are facts with ids of events; `root_cause` is what was seen together, which proves nothing.
    """

    cluster_id: str
    node_id: str
    kind: Kind
    descriptor: str
    start_ns: int
    end_ns: int
    severity: Severity
    summary: str
    root_cause: str
    explanation: str
    recommendations: tuple[str, ...] = ()
    op: str = ""
    p99_ns: int | None = None
    p50_ns: int | None = None
    usual_ns: int | None = None
    timeline: tuple[Line, ...] = ()
    evidence: tuple[Statement, ...] = ()
    job_id: str | None = None

    @property
    def chain_id(self) -> str:
        """node:descriptor:start, in Unix ns: the same however wide the window was in which it was found."""
        return f"{self.node_id}:{self.descriptor}:{self.start_ns}"

    @property
    def tail_ratio(self) -> float | None:
        """The 99th percentile divided by the median; None if the chain is not about durations."""
        return self.p99_ns / self.p50_ns if self.p99_ns and self.p50_ns else None


def in_order(chains: Iterable[Chain]) -> tuple[Chain, ...]:
    """By severity, then by time."""
    return tuple(sorted(chains, key=lambda one: (rank_of(one.severity), one.start_ns, one.node_id, one.descriptor)))
