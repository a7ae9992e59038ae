"""Slow peers: communicators whose transfers always take longer than those of others that do the same elsewhere.

Compared are communicators of the same shape (as many ranks on as many hosts) without a rank in common, over the
operations and sizes that they share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Int64s
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.grouping import Grouping
from ingero_mcp.analysis.robust import spread
from ingero_mcp.analysis.transfer_times import Transfers

LONGER: Final = 1.3
"""A communicator whose transfers take so many times as long as those of its like is slow."""

_FEWEST: Final = 3  # communicators: of two either may be the odd one
_LEAST: Final = 8  # transfers of each
_CLEAR: Final = 5.0  # spreads of the communicators that are well


def slower_than_peers(evidence: Evidence, times: Transfers, steps: int) -> tuple[Int64s, Int64s, float, float]:
    """The slow communicators, those that are well, how many times as long the slow take, and the excess per step."""
    ratio: dict[int, list[float]] = {}
    hosts = evidence.hosts
    slots = Grouping.of(times.kind * np.int64(len(times.comm_ids) + 1) + times.comm)
    typical, members = slots.medians(times.time_ns), slots.members()
    alike: dict[tuple[int, tuple[int, ...]], list[tuple[int, float]]] = {}
    for mine, value in zip(members, typical.tolist(), strict=True):
        comm, kind = int(times.comm[mine[0]]), int(times.kind[mine[0]])
        if len(mine) >= _LEAST:
            alike.setdefault((kind, _shape(hosts, times.members[comm])), []).append((comm, value))
    for group in alike.values():
        if len(group) >= _FEWEST and _are_apart([times.members[comm] for comm, _ in group]):
            for comm, value in _against_median(group):
                ratio.setdefault(comm, []).append(value)
    usual = {comm: float(np.median(values)) for comm, values in ratio.items()}
    slow = np.array(sorted(comm for comm, value in usual.items() if value >= LONGER), dtype=np.int64)
    well = np.array(sorted(set(usual) - set(slow.tolist())), dtype=np.int64)
    # What most of the compared ones are is what is usual.
    if not len(slow) or len(slow) >= len(well):
        return slow[:0], well, 1.0, 0.0
    healthy = np.array([usual[comm] for comm in well.tolist()])
    times_longer = float(np.median([usual[comm] for comm in slow.tolist()]))
    if times_longer - 1 < _CLEAR * spread(healthy):
        return slow[:0], well, 1.0, 0.0
    total = np.bincount(times.comm, weights=times.time_ns, minlength=len(times.comm_ids))[slow]
    return slow, well, times_longer, float(total.max()) / steps * (1 - 1 / times_longer)


def _against_median(group: list[tuple[int, float]]) -> list[tuple[int, float]]:
    ordered = sorted(value for _, value in group)
    usual = ordered[(len(ordered) - 1) // 2]
    return [(comm, value / usual) for comm, value in group]


def _shape(hosts_of: Mapping[int, str], ranks: tuple[int, ...]) -> tuple[int, ...]:
    """How many ranks are on each host of a communicator, in order of size."""
    hosts: dict[str, int] = {}
    for rank in ranks:
        name = hosts_of.get(rank, "")
        hosts[name] = hosts.get(name, 0) + 1
    return tuple(sorted(hosts.values()))


def _are_apart(members: list[tuple[int, ...]]) -> bool:
    """Whether communicators have no rank in common, as those have that do the same for different ranks."""
    return len(set().union(*members)) == sum(map(len, members))
