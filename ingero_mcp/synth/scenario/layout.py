"""Where the ranks of a job are: parallel groups, communicators, hosts.

Ranks are counted as Megatron-LM does: tensor parallel first, then data parallel, then pipeline stages. Arrays over all
ranks have the shape (pp, dp, tp), so that every kind of group lies along an axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Kind = Literal["world", "dp", "tp", "pp", "embedding"]
KINDS: Final[tuple[Kind, ...]] = ("world", "dp", "tp", "pp", "embedding")


@dataclass(frozen=True, slots=True)
class Comm:
    """A communicator: its global ranks in the order of their ranks inside it."""

    id: str
    kind: Kind
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How many pipeline stages, data parallel replicas and tensor parallel ranks there are, on how many hosts.

    With `embedding` the first and the last stage share weights, and so a communicator per tensor parallel rank.
    """

    job_id: str
    pp: int
    dp: int
    tp: int
    hosts: tuple[str, ...]
    embedding: bool = False

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.pp * self.dp * self.tp

    @property
    def shape(self) -> tuple[int, int, int]:
        """(pp, dp, tp)."""
        return self.pp, self.dp, self.tp

    @property
    def ranks_per_host(self) -> int:
        """Ranks are dealt out host by host."""
        return self.world // len(self.hosts)

    def host_of(self, rank: int) -> int:
        """The index of the rank's host."""
        return rank // self.ranks_per_host

    def ranks_of_host(self, host: int) -> tuple[int, ...]:
        """The ranks on a host."""
        return tuple(range(host * self.ranks_per_host, (host + 1) * self.ranks_per_host))

    def place(self, rank: int) -> tuple[int, int, int]:
        """(stage, dp_rank, tp_rank)."""
        stage, within = divmod(rank, self.dp * self.tp)
        return stage, within // self.tp, within % self.tp

    def ranks_of_stage(self, stage: int) -> tuple[int, ...]:
        """The ranks of a pipeline stage."""
        return tuple(range(stage * self.dp * self.tp, (stage + 1) * self.dp * self.tp))

    def has_peers(self, ranks: tuple[int, ...]) -> bool:
        """Whether in a stage of some of these ranks as many others do the same work."""
        stages = {self.place(rank)[0] for rank in ranks}
        return any(2 * len(set(self.ranks_of_stage(stage)) & set(ranks)) <= self.dp * self.tp for stage in stages)

    @cached_property
    def comms(self) -> tuple[Comm, ...]:
        """Every communicator; groups of one rank have none."""
        return tuple(
            Comm(self._comm_id(kind, place), kind, tuple(group.tolist()))
            for kind in KINDS
            for place, group in enumerate(self._groups(kind))
            if len(group) > 1
        )

    @cached_property
    def comm_of(self) -> dict[Kind, npt.NDArray[np.int64]]:
        """For each kind the communicator of each rank, as an index into `comms`; -1 where it has none."""
        found = {kind: np.full(self.world, -1, np.int64) for kind in KINDS}
        for index, comm in enumerate(self.comms):
            found[comm.kind][list(comm.ranks)] = index
        return found

    def crosses(self, comm: Comm, link: tuple[int, int]) -> bool:
        """True if the communicator has members on both hosts of the link."""
        return set(link) <= {self.host_of(rank) for rank in comm.ranks}

    def _groups(self, kind: Kind) -> npt.NDArray[np.int64]:
        ranks = np.arange(self.world).reshape(self.shape)
        match kind:
            case "world":
                return ranks.reshape(1, -1)
            case "dp":
                replicas = ranks.transpose(0, 2, 1).reshape(-1, self.dp)
                return replicas if self.dp < self.world else replicas[:0]
            case "tp":
                return ranks.reshape(-1, self.tp)
            case "pp":
                return ranks.transpose(1, 2, 0).reshape(-1, self.pp)
            case "embedding":
                ends = ranks[[0, -1]].transpose(2, 0, 1).reshape(self.tp, -1)
                return ends if self.embedding else ends[:0]

    def _comm_id(self, kind: Kind, place: int) -> str:
        return blake2b(f"{self.job_id}/{kind}/{place}".encode(), digest_size=8).hexdigest()
