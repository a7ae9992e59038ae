"""Chains that were stored: by an Ingero agent, or by a server of ours earlier. What is one incident is one row."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ingero_mcp.analysis.chains.chain import JOINED_NS, Chain
from ingero_mcp.analysis.chains.record import BLOCK_NS
from ingero_mcp.analysis.severity import rank_of

_NUMBERED: Final = re.compile(r"chain-[0-9]+")
_KINDS: Final = (
    ("tail-", "tail_latency"),
    ("drop-", "throughput_drop"),
    ("oom", "oom"),
    ("pod-oom", "oom"),
    ("tcp-retransmit", "tcp_retransmit"),
    ("pod-restart", "pod_restart"),
    ("pod-eviction", "pod_eviction"),
    ("noisy-neighbo", "noisy_neighbour"),
    ("graph-", "cuda_graph"),
)


@dataclass(frozen=True, slots=True)
class Stored:
    """A row of the view `chains`; times in Unix ns. `count` are the rows that it stands for, from the `first_ns` to the
    `last_ns`. `is_ours` where a server of ours wrote it."""

    cluster_id: str
    node_id: str
    chain_id: str
    kind: str | None
    severity: str
    summary: str
    root_cause: str
    explanation: str
    recommendations: str
    op: str
    p99_us: int | None
    p50_us: int | None
    tail_ratio: float | None
    timeline: str
    evidence: str
    detected_ns: int
    start_ns: int | None
    end_ns: int | None
    rank: int | None
    job_id: str | None
    cause: str | None
    confidence: float | None
    is_ours: bool
    count: int = 1
    first_ns: int = 0
    last_ns: int = 0

    @property
    def descriptor(self) -> str:
        """What the id says beside the node and the start."""
        inner = self.chain_id.removeprefix(f"{self.node_id}:")
        return inner.removesuffix(f":{self.start_ns}") if self.start_ns is not None else inner


def kind_of(one: Stored) -> str | None:
    """Its kind; where an agent did not say, by its id or by what its summary tells."""
    if one.kind:
        return one.kind
    for begin, kind in _KINDS:
        if one.descriptor.startswith(begin):
            return kind
    if "throughput dropped" in one.summary:
        return "throughput_drop"
    return "tail_latency" if one.tail_ratio else None


def grouped(chains: Iterable[Stored]) -> list[Stored]:
    """Old agents wrote a chain anew every second, under a new number: those of one operation and time become one, the
    worst and latest of them, with how many there are."""
    by_op: dict[tuple[str, str, str, str], list[Stored]] = {}
    found = []
    for one in sorted(chains, key=lambda one: one.detected_ns):
        known = replace(one, kind=kind_of(one), first_ns=one.detected_ns, last_ns=one.detected_ns)
        if _NUMBERED.fullmatch(one.descriptor):
            by_op.setdefault((one.cluster_id, one.node_id, one.op, known.kind or ""), []).append(known)
        else:
            found.append(known)
    for of_op in by_op.values():
        run: list[Stored] = []
        for one in of_op:
            if run and one.detected_ns > run[-1].detected_ns + JOINED_NS:
                found.append(_one_of(run))
                run = []
            run.append(one)
        found.append(_one_of(run))
    return found


def _one_of(run: list[Stored]) -> Stored:
    worst = min(run, key=lambda one: (rank_of(one.severity), -one.detected_ns))
    return replace(worst, count=len(run), first_ns=run[0].detected_ns, last_ns=run[-1].detected_ns)


def continued(chains: Iterable[Chain], known: Iterable[Stored]) -> tuple[Chain, ...]:
    """The chains, with the start that they were kept with before: of those that began before the window in which they
    are found now, and of those that were found first when their minute was not over."""
    ours = [one for one in known if one.is_ours and one.start_ns is not None]
    return tuple(_continued(chain, ours) for chain in chains)


def _continued(chain: Chain, ours: list[Stored]) -> Chain:
    starts = [
        one.start_ns
        for one in ours
        if is_same(one, chain) and one.start_ns is not None and one.start_ns < chain.start_ns + BLOCK_NS
    ]
    return replace(chain, start_ns=min(starts)) if starts else chain


def is_same(one: Stored, chain: Chain) -> bool:
    """Whether a chain that a server of ours kept is an earlier state of this one."""
    about = (one.cluster_id, one.node_id, one.descriptor) == (chain.cluster_id, chain.node_id, chain.descriptor)
    if not about or not one.is_ours or one.start_ns is None:
        return False
    end_ns = one.end_ns if one.end_ns is not None else one.detected_ns
    return one.start_ns <= chain.end_ns + JOINED_NS and chain.start_ns <= end_ns + JOINED_NS


def is_about(one: Stored, chain: Chain) -> bool:
    """Whether a stored chain is about the same trouble as one that was computed: the operation, and the time within a
    minute, since agents look back from when they notice."""
    near_ns = JOINED_NS // 2
    same = (one.cluster_id, one.node_id, one.op, one.kind) == (chain.cluster_id, chain.node_id, chain.op, chain.kind)
    return same and chain.start_ns - near_ns <= one.last_ns and one.first_ns <= chain.end_ns + near_ns
