"""Which global rank a process is: logs say only the rank inside a communicator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ingero_mcp.importers.inspector.record import Context

Process = tuple[str, int]
"""Host and pid."""

_Seat = tuple[str, int, int, int]  # host, pid, hash of the communicator, rank in it


@dataclass(slots=True)
class Ranks:
    """The largest communicator of a log is taken for that of the whole job, and the ranks in it for the global ones.

    What else a process does is put down to its rank there. Nothing is said of a process that is not in such a
    communicator, or has different ranks in several; a process that drives several GPUs, and so has several ranks
    in one communicator, has global ranks in the largest one only.
    """

    _sizes: dict[_Seat, int] = field(default_factory=dict)
    _world_size: int = 0
    _ranks: dict[Process, int] = field(default_factory=dict)
    _shared: set[Process] = field(default_factory=set)

    def add(self, context: Context) -> None:
        """Take note of a communicator that a process uses."""
        communicator = context.communicator
        seat = (context.host, context.pid, communicator.hash, communicator.rank)
        if self._sizes.get(seat, 0) < communicator.nranks:
            self._sizes[seat] = communicator.nranks

    def settle(self) -> None:
        """Decide, after the last `add` and before anything is asked."""
        self._world_size = max(self._sizes.values(), default=0)
        ranks: defaultdict[Process, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for (host, pid, comm, rank), size in self._sizes.items():
            if size == self._world_size:
                ranks[host, pid][comm].add(rank)
        for process, seats in ranks.items():
            own = set().union(*seats.values())
            if len(own) == 1:
                self._ranks[process] = own.pop()
            elif any(len(of_one) > 1 for of_one in seats.values()):
                self._shared.add(process)

    def forget(self) -> None:
        """Give up all global ranks, as the largest communicator was found not to be that of the job."""
        self._ranks.clear()
        self._shared.clear()

    @property
    def world_size(self) -> int:
        """The size of the largest communicator."""
        return self._world_size

    @property
    def known(self) -> int:
        """How many global ranks there are."""
        shared = {
            rank
            for (host, pid, _, rank), size in self._sizes.items()
            if (host, pid) in self._shared and size == self._world_size
        }
        return len(shared.union(self._ranks.values()))

    @property
    def unknown(self) -> int:
        """How many processes have no global rank."""
        return len({(host, pid) for host, pid, _, _ in self._sizes} - self._ranks.keys() - self._shared)

    def rank_of(self, context: Context) -> int | None:
        """The global rank of the process that wrote a record, None where it is not known."""
        process = (context.host, context.pid)
        if process in self._shared and context.communicator.nranks == self._world_size:
            return context.communicator.rank
        return self._ranks.get(process)
