"""How far the clocks of nodes are apart, read off the collectives of their jobs: what a store keeps for its views."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from ingero_mcp.analysis.align import aligned
from ingero_mcp.analysis.clocks import ClockFit
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.verdict import fitted_clocks
from ingero_mcp.clocks import NodeClock
from ingero_mcp.semconv import UNKNOWN
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.evidence import read_evidence
from ingero_mcp.tools.jobs import jobs
from ingero_mcp.windows import Window

METHOD: Final = "collectives"


def node_clocks(call: Call, window: Window) -> tuple[NodeClock, ...]:
    """The offsets of the clocks of every job in the window, where collectives connect them."""
    found: list[NodeClock] = []
    for job in jobs(call, window):
        evidence = aligned(read_evidence(call, job, window))
        if len(evidence.calls):
            found += _kept(evidence, fitted_clocks(evidence))
    return tuple(found)


def _kept(evidence: Evidence, clocks: ClockFit) -> list[NodeClock]:
    names = _names(evidence)
    return [
        NodeClock(
            cluster_id=evidence.cluster_id,
            node_id=names[one.clock][0],
            rank=names[one.clock][1],
            at_ns=one.at_ns,
            offset_ns=round(one.offset_ns),
            bound_ns=math.ceil(one.bound_ns),
            method=f"{METHOD} ({one.method})",
            reference=_said(names[one.reference]),
        )
        for one in clocks.offsets
        if one.clock in names and one.reference in names and math.isfinite(one.bound_ns)
    ]


def _names(evidence: Evidence) -> dict[int, tuple[str, int | None]]:
    """Whose each clock is: a node's, or where nodes are not known a rank's."""
    pairs = np.unique(np.stack([evidence.calls.clock, evidence.calls.rank]), axis=1).T.tolist()
    hosts = evidence.hosts
    return {clock: (hosts[rank], None) if rank in hosts else (UNKNOWN, rank) for clock, rank in pairs}


def _said(name: tuple[str, int | None]) -> str:
    node, rank = name
    return node if rank is None else f"rank {rank}"
