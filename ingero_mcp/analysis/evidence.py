"""Evidence: everything about one job in one window that the analysis reads, before any conclusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ingero_mcp.analysis.calls import Bools, Calls, Floats, Int64s
from ingero_mcp.semconv import UNKNOWN
from ingero_mcp.windows import Window

Timing: TypeAlias = Literal["kernel_gpu", "host_sync", "host_api", "recorder", "none"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs; a part is None if no event said it."""

    node_id: str | None
    pid: int | None = None
    gpu_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Communicator:
    """A communicator as it is known: by the largest size and the members that were named or seen."""

    comm_id: str
    nranks: int
    members: tuple[int, ...]
    name: str = ""
    desc: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sends:
    """Sends and receives; `calls.collective` numbers the pair, `peer` is the global rank at the other end or -1."""

    calls: Calls
    peer: Int64s
    is_send: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Computing that was recorded as such, as parallel arrays. Where `is_wait`, it waits for other ranks inside."""

    rank: Int64s
    step: Int64s
    start_ns: Int64s
    end_ns: Int64s
    is_wait: Bools


@dataclass(frozen=True, slots=True)
class Entry:
    """A collective as a recorder dumped it, with how far it had come."""

    rank: int
    comm_id: str
    seq: int
    op: str
    count: int | None
    datatype: str | None
    state: str
    enter_ns: int
    event_id: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rank had come in a communicator; None where the recorder did not say."""

    rank: int
    comm_id: str
    last_enqueued: int | None
    last_completed: int | None


@dataclass(frozen=True, slots=True)
class Dump:
    """A recorder's dump of one rank: `entries` recorded, `open` of them not completed; None if it lists none at all."""

    rank: int
    entries: int | None
    open: int | None
    event_id: str


@dataclass(frozen=True, slots=True)
class Sign:
    """A single event that means something: an open call, an exit, a GPU fault, a flag of a monitor.

    `kind` is the name of the event, `detail` what is special about it.
    """

    kind: str
    rank: int | None
    node_id: str
    pid: int | None
    at_ns: int
    value: float | None
    detail: str
    event_id: str


@dataclass(frozen=True, slots=True)
class Counter:
    """What a metric was for one GPU, rank or node over the window: the median of its samples."""

    metric: str
    rank: int | None
    node_id: str
    gpu_uuid: str | None
    median: float
    samples: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that a node lost, between two times of its clock."""

    node_id: str
    lost: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What is known of one job.

    `event_seqs[calls.row]` are the numbers of the events on their nodes. `timing` is the best timing source that most
    calls have. `stages` are pipeline stages by rank, where the events say them. `newest_ns` is the time of the newest
    event of the whole database in the window: how long something has been silent is judged by it. `attached` are the
    (communicator, rank) that were met in the middle, so that their numbers mean nothing to others; `unaligned` the
    ranks that were left out for it. `moved` are the ranks that were on several nodes; `places` says the last.
    """

    cluster_id: str
    job_id: str | None
    window: Window
    newest_ns: int
    timing: Timing
    world_size: int | None
    calls: Calls
    event_seqs: Int64s
    sends: Sends
    work: Work | None
    places: Mapping[int, Place]
    stages: Mapping[int, int]
    communicators: Mapping[str, Communicator]
    attached: frozenset[tuple[str, int]] = frozenset()
    unaligned: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    entries: tuple[Entry, ...] = ()
    progress: tuple[Progress, ...] = ()
    dumps: tuple[Dump, ...] = ()
    signs: tuple[Sign, ...] = ()
    counters: tuple[Counter, ...] = ()
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()

    def node(self, rank: int) -> str | None:
        """The node of a rank, None if no event named it."""
        place = self.places.get(rank)
        return place.node_id if place else None

    @property
    def hosts(self) -> dict[int, str]:
        """The node of each rank whose node has a name."""
        return {
            rank: place.node_id
            for rank, place in self.places.items()
            if place.node_id is not None and place.node_id != UNKNOWN
        }

    def name(self, comm_id: str) -> str:
        """A communicator by the name that its job gave it, else by its id."""
        known = self.communicators.get(comm_id)
        if known is None or not known.name:
            return comm_id
        return f"{known.name} ({known.desc})" if known.desc else known.name

    def event_id(self, call: int) -> str:
        """The id of the event of a call, by its position in `calls`; empty if its node is not known for sure."""
        rank = int(self.calls.rank[call])
        node = self.node(rank)
        is_sure = node is not None and rank not in self.moved
        return f"{node}:{int(self.event_seqs[self.calls.row[call]])}" if is_sure else ""


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A number per step and rank: `values[step, rank]`, NaN where it is not known.

    `steps` and `ranks` are what the rows and columns stand for; `measures` says in words what the numbers are. Whether
    they are the work of the GPUs, so that roles can be compared with each other, is in `is_gpu_work`.
    """

    values: Floats
    steps: Int64s
    ranks: Int64s
    measures: str
    is_gpu_work: bool = False
