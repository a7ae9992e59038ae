"""Processes and threads of a trace: their numbers, names and order. A process is a node, or a rank on a node.

Numbers are ours, from 1 upward: recorded process and thread ids may be anything, are used by several hosts, and a
viewer keeps 32 bits of them. The names tell the recorded ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ingero_mcp.export.lanes import Lanes

# In this order they stand below each other.
CHAINS: Final = "causal chains"
GAPS: Final = "lost events"
GPU: Final = "GPU"
THREAD: Final = "thread"
_ORDER: Final = {CHAINS: 0, GAPS: 1, GPU: 2, THREAD: 3}
_SORT_STEP: Final = 1_000_000
_MOST_TRACKS: Final = 50_000
_LONGEST_NAME: Final = 200


class Place(NamedTuple):
    """Where something happened; the job only where the rank is known, since ranks are those of a job."""

    cluster_id: str | None
    node_id: str | None
    job_id: str | None
    rank: int | None


def place_of(cluster_id: str | None, node_id: str | None, job_id: str | None, rank: int | None) -> Place:
    """The place of an event."""
    return Place(cluster_id, node_id, job_id if rank is not None else None, rank)


@dataclass(frozen=True, slots=True)
class Named:
    """A process or thread that has to be named: what the metadata of the trace says of it."""

    pid: int
    tid: int | None
    name: str
    sort_index: int


@dataclass(slots=True)
class Track:
    """A thread, a stream of a GPU or a list of marks; `tids` are the numbers of its lanes."""

    pid: int
    kind: str
    name: str
    lanes: Lanes = field(default_factory=Lanes)
    tids: list[int] = field(default_factory=list)

    def tid_open_at(self, time_ns: int) -> int | None:
        """The number of a lane with a span around that time."""
        lane = self.lanes.open_at(time_ns)
        return None if lane is None else self.tids[lane]


class Tracks:
    """Numbers processes and threads as they come. `places` that are known before are in order; others follow."""

    def __init__(self, places: list[Place]) -> None:
        self._many_clusters = len({place.cluster_id for place in places}) > 1
        self._many_jobs = len({place.job_id for place in places if place.rank is not None}) > 1
        self._order = {place: number for number, place in enumerate(sorted(set(places), key=_in_order), start=1)}
        self._pids: dict[Place, int] = {}
        self._tracks: dict[tuple[int, str, object], Track] = {}
        self._unnamed: list[Named] = []
        self._last_tid = 0
        self._forget_at = _MOST_TRACKS

    def pid(self, place: Place) -> int:
        """The number of the process."""
        known = self._pids.get(place)
        if known is None:
            known = self._pids[place] = self._order.setdefault(place, len(self._order) + 1)
            self._unnamed.append(Named(known, None, self._process_name(place), known))
        return known

    def track(self, place: Place, kind: str, key: object, name: str, now_ns: int) -> Track:
        """The track of that kind and key in the process."""
        pid = self.pid(place)
        known = self._tracks.get((pid, kind, key))
        if known is None:
            if len(self._tracks) >= self._forget_at:
                self._forget_idle(now_ns)
            known = self._tracks[pid, kind, key] = Track(pid, kind, name[:_LONGEST_NAME])
        return known

    def tid(self, track: Track, start_ns: int, end_ns: int) -> int:
        """The number of the lane for a span on a track."""
        lane = track.lanes.place(start_ns, end_ns)
        while lane >= len(track.tids):
            self._last_tid += 1
            track.tids.append(self._last_tid)
            name = track.name if len(track.tids) == 1 else f"{track.name} (+{len(track.tids) - 1})"
            sort_index = _ORDER[track.kind] * _SORT_STEP + self._last_tid % _SORT_STEP
            self._unnamed.append(Named(track.pid, self._last_tid, name, sort_index))
        return track.tids[lane]

    def to_name(self) -> Iterator[Named]:
        """What was numbered since the last time and has no name in the trace yet."""
        named, self._unnamed = self._unnamed, []
        yield from named

    def _forget_idle(self, now_ns: int) -> None:
        # A host that starts processes for ever would fill the memory; a thread that comes again gets another number.
        self._tracks = {key: track for key, track in self._tracks.items() if not track.lanes.is_idle(now_ns)}
        self._forget_at = max(_MOST_TRACKS, 2 * len(self._tracks))

    def _process_name(self, place: Place) -> str:
        parts = [f"{place.cluster_id}:"] if self._many_clusters and place.cluster_id else []
        parts.append(place.node_id or "no node")
        if place.rank is not None:
            parts.append(f"rank {place.rank}")
            parts += [f"({place.job_id})"] if self._many_jobs and place.job_id is not None else []
        return " ".join(part[:_LONGEST_NAME] for part in parts)


def _in_order(place: Place) -> tuple[object, ...]:
    return (
        place.cluster_id or "",
        _natural(place.node_id or ""),
        place.job_id or "",
        -1 if place.rank is None else place.rank,
    )


def _natural(name: str) -> tuple[str, int, str]:
    """node-10 after node-9: by what stands before the number at the end, then by the number."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return (stem, int(digits[:18]) if digits else -1, name)
