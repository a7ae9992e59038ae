"""Who a process is in its job: its rank, the size of the job, the job's name, and the communicators it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

LAUNCH_VARIABLES: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
"""What launchers tell a process; all that is read of its environment."""

RankSource = Literal["nccl", "environ", "largest_communicator"]
_SEED: Final = 0x9E3779B97F4A7C15
_MASK: Final = 2**64 - 1


def fold(words: Iterable[int]) -> int:
    """The splitmix64 fold of 64-bit words; of a `ncclUniqueId`'s sixteen, the hash that Ingero agents send."""
    state = _SEED
    for word in words:
        state ^= word & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def hash_of_unique_id(unique_id: bytes) -> int:
    """The id of the communicator that 128 bytes name, the same on all its ranks."""
    return fold(int.from_bytes(unique_id[at : at + 8], "little") for at in range(0, len(unique_id), 8))


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator as one of its ranks knows it.

    Seen at its init: `origin` is "init", and `id` is the same on all ranks. Met later: "attach", and the id is this
    process's own, so that it joins with nobody. `rank` and `nranks` are None where a probe cannot know them.
    """

    id: int
    rank: int | None
    nranks: int | None
    origin: Literal["init", "attach"]
    made_ns: int

    @property
    def hex(self) -> str:
        """As it is sent."""
        return f"{self.id:016x}"


class Place:
    """What is known of a process's place in its job; grows as it makes communicators."""

    def __init__(self, launch: Mapping[str, str]) -> None:
        self._env_rank = _whole(launch.get("RANK"))
        self._env_world = _whole(launch.get("WORLD_SIZE"))
        named = launch.get("TORCHELASTIC_RUN_ID", "")
        # "none" is torchrun's own name for a job that nobody named: the same for all of them.
        self._job = launch.get("SLURM_JOB_ID", "") if named in ("", "none") else named
        self.local_rank = _whole(launch.get("LOCAL_RANK"))
        self.world: Communicator | None = None
        """The largest communicator so far, the first of its size: the one of the whole job, once that is there."""

    def learn(self, communicator: Communicator) -> None:
        """The process made a communicator."""
        largest = self.world.nranks if self.world else None
        if communicator.nranks is not None and communicator.nranks > (largest or 0):
            self.world = communicator

    @property
    def rank(self) -> int | None:
        """The global rank."""
        return self._ranked()[0]

    @property
    def rank_source(self) -> RankSource | None:
        """What said so: the init of a communicator as large as the job, the launcher, or, where nobody said how
        large the job is, the largest communicator."""
        return self._ranked()[1]

    def _ranked(self) -> tuple[int | None, RankSource | None]:
        world = self.world
        if world is not None and world.nranks == self._env_world:
            return world.rank, "nccl"
        if self._env_rank is not None:
            return self._env_rank, "environ"
        if world is not None and self._env_world is None:
            return world.rank, "largest_communicator"
        return None, None

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has."""
        return self._env_world or (self.world.nranks if self.world else None)

    @property
    def job_id(self) -> str | None:
        """The launcher's name for the job, else one made of the world communicator, which all ranks share."""
        if self._job:
            return self._job
        return f"comm-{self.world.hex}" if self.world else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
