"""Roles: which ranks do the same work, so that one can be compared with the others.

With pipeline parallelism the ranks of different stages have different work. Where the events say the stage, that is
the role. Else it follows from who talks to whom: sends and receives tie the ranks of one pipeline together, and a
communicator none of whose members are in one pipeline joins ranks of the same stage (data or tensor parallel).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN
from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each rank. `named` says that roles are stages that the events name; else they are only numbered."""

    of_rank: Mapping[int, int]
    named: bool

    def ranks(self, role: int) -> tuple[int, ...]:
        """The ranks of a role in order."""
        return tuple(sorted(rank for rank, one in self.of_rank.items() if one == role))

    @property
    def all(self) -> tuple[int, ...]:
        """Every role in order."""
        return tuple(sorted(set(self.of_rank.values())))


def find_roles(evidence: Evidence) -> Roles:
    """The roles of the ranks that were seen; a single one if nothing tells them apart."""
    seen = {*distinct(evidence.calls.rank).tolist(), *evidence.stages}
    ranks = tuple(sorted(seen | set(np.unique(evidence.work.rank).tolist() if evidence.work is not None else ())))
    stages = {rank: evidence.stages[rank] for rank in ranks if rank in evidence.stages}
    if len(stages) == len(ranks) and ranks:
        return Roles(stages, named=True)
    pipelines = _pipelines(evidence)
    if not pipelines:
        return Roles(dict.fromkeys(ranks, 0), named=False)
    joined = _Sets(ranks)
    for communicator in evidence.communicators.values():
        members = [rank for rank in communicator.members if rank in joined.parent]
        if len(members) > 1 and not _share_a_pipeline(members, pipelines):
            for rank in members[1:]:
                joined.join(members[0], rank)
    number = {root: place for place, root in enumerate(sorted({joined.root(rank) for rank in ranks}))}
    return Roles({rank: number[joined.root(rank)] for rank in ranks}, named=False)


def _pipelines(evidence: Evidence) -> dict[int, int]:
    """For each rank that sends or receives the pipeline that it is in."""
    calls, peer = evidence.sends.calls, evidence.sends.peer
    known = peer != UNKNOWN
    pairs = np.unique(np.stack([calls.rank[known], peer[known]]), axis=1).T.tolist()
    joined = _Sets(tuple({rank for pair in pairs for rank in pair}))
    for one, other in pairs:
        joined.join(one, other)
    return {rank: joined.root(rank) for rank in joined.parent}


def _share_a_pipeline(members: list[int], pipelines: Mapping[int, int]) -> bool:
    through = [pipelines[rank] for rank in members if rank in pipelines]
    return len(set(through)) < len(through)


class _Sets:
    """Sets of ranks that can be joined (union-find)."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.parent = {rank: rank for rank in ranks}

    def root(self, rank: int) -> int:
        while self.parent[rank] != rank:
            self.parent[rank] = self.parent[self.parent[rank]]
            rank = self.parent[rank]
        return rank

    def join(self, one: int, other: int) -> None:
        one, other = self.root(one), self.root(other)
        self.parent[max(one, other)] = min(one, other)
