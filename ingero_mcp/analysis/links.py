"""Links: between which hosts is the path that the slow communicators have in common, and the others do not take?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from ingero_mcp.analysis.findings import Group

_MOST_HOSTS: Final = 64  # of which pairs are tried


def find_link(
    slow: Sequence[tuple[int, ...]], well: Sequence[tuple[int, ...]], hosts: Mapping[int, str]
) -> Group | None:
    """The link whose crossing explains which communicators are slow, given the ranks of the slow and of those that are
    well; a host, if all its links do; None if hosts are not known or several links explain it equally well.

    A link scores for each slow communicator that crosses it; one that crosses it and is well counts against it. What a
    communicator of many hosts says is divided among their links: which of them it uses is not known.
    """
    slow_at = [frozenset(hosts[rank] for rank in ranks if rank in hosts) for ranks in slow]
    well_at = [frozenset(hosts[rank] for rank in ranks if rank in hosts) for ranks in well]
    names = sorted(set().union(*slow_at))
    if not 2 <= len(names) <= _MOST_HOSTS:
        return None
    score = {
        link: sum(_tells(at) for at in slow_at if set(link) <= at)
        - sum(_tells(at) for at in well_at if set(link) <= at)
        for link in combinations(names, 2)
    }
    best = max(score.values())
    likely = [link for link, value in score.items() if value > best - 1e-9]
    if best <= 0:
        return None
    if len(likely) == 1:
        return Group("link", " - ".join(likely[0]), _crossing(slow, hosts, set(likely[0])))
    shared = set(likely[0]).intersection(*likely[1:])
    if len(shared) == 1 and len(likely) == len(set(hosts.values())) - 1 > 1:
        return Group("host", shared.pop(), _crossing(slow, hosts, shared))
    return None


def _tells(at: frozenset[str]) -> float:
    return 2 / (len(at) * (len(at) - 1)) if len(at) > 1 else 0.0


def _crossing(slow: Sequence[tuple[int, ...]], hosts: Mapping[int, str], ends: set[str]) -> tuple[int, ...]:
    """The ranks of the slow communicators that have members at all of the ends."""
    found = [ranks for ranks in slow if ends <= {hosts[rank] for rank in ranks if rank in hosts}]
    return tuple(sorted({rank for ranks in found for rank in ranks}))
