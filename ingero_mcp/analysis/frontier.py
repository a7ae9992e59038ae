"""The frontier: how far each rank has come in each communicator, from a recorder's dump or from what was seen live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.analysis.calls import UNKNOWN
from ingero_mcp.analysis.evidence import Entry, Evidence, Sign
from ingero_mcp.analysis.paths import last_entries, last_places, paths_of

ONE_SIDED: Final = frozenset({"ncclBroadcast", "ncclBcast", "ncclReduce", "ncclGather", "ncclScatter"})
"""Operations that may end on one rank before another has begun: that one ended and another did not says nothing."""

UNEVEN: Final = ONE_SIDED | {"ncclAlltoAll", "nccl.coalesced"}
"""Operations whose ranks may rightly call them with different sizes."""

COMPLETED: Final = "completed"


@dataclass(slots=True)
class Stand:
    """Where a rank stands in a communicator: the last collective it entered, the last that ended, the first open one.

    None where there is none or it is not known. `event_id` is the event of the first open one, or of the last entered;
    `open_ns` is when the first open one was entered.
    """

    entered: int | None = None
    ended: int | None = None
    open: int | None = None
    event_id: str = ""
    one_sided: bool = False
    open_ns: int | None = None

    @property
    def next(self) -> int | None:
        """The first collective that has not ended for this rank."""
        if self.open is not None:
            return self.open
        return None if self.ended is None else self.ended + 1


@dataclass(frozen=True, slots=True)
class Frontier:
    """`stands[comm_id][rank]`; `absent[comm_id]` are members of which nothing was seen; `waiting` are ranks inside a
    collective that cannot end yet; `silent` ranks are in no collective while others wait for them. `last_ns` is when
    each rank was last seen to enter something."""

    stands: Mapping[str, Mapping[int, Stand]]
    absent: Mapping[str, tuple[int, ...]]
    waiting: frozenset[int]
    silent: frozenset[int]
    seen: frozenset[int]
    last_ns: Mapping[int, int] = field(default_factory=dict)


def recorded_frontier(evidence: Evidence) -> Frontier:
    """Where the ranks stood when their recorders were dumped."""
    stands: dict[str, dict[int, Stand]] = defaultdict(lambda: defaultdict(Stand))
    last: dict[int, int] = {}
    for entry in evidence.entries:
        _enter(stands[entry.comm_id][entry.rank], entry)
        last[entry.rank] = max(last.get(entry.rank, entry.enter_ns), entry.enter_ns)
    for entry in evidence.entries:
        _open(stands[entry.comm_id][entry.rank], entry)
    for one in evidence.progress:
        stand = stands[one.comm_id][one.rank]
        if one.last_enqueued is not None:
            stand.entered = max(one.last_enqueued, -1 if stand.entered is None else stand.entered)
        if one.last_completed is not None:
            stand.ended = max(one.last_completed, -1 if stand.ended is None else stand.ended)
    seen = frozenset({dump.rank for dump in evidence.dumps} | {entry.rank for entry in evidence.entries})
    still_open = {dump.rank for dump in evidence.dumps if dump.open}
    waiting = frozenset(still_open | _inside(stands))
    silent = _silent(stands, _told(stands), waiting, evidence)
    return Frontier(stands, _absent(evidence, seen, stands), waiting, silent, seen, last)


def _enter(stand: Stand, entry: Entry) -> None:
    if stand.entered is None or entry.seq > stand.entered:
        stand.entered = entry.seq
        stand.event_id = entry.event_id
    if entry.state == COMPLETED:
        stand.ended = entry.seq if stand.ended is None else max(stand.ended, entry.seq)


def _open(stand: Stand, entry: Entry) -> None:
    # Collectives of a communicator end in order: one before another that ended has ended, whatever its state says.
    is_open = entry.state != COMPLETED and (stand.ended is None or entry.seq > stand.ended)
    if is_open and (stand.open is None or entry.seq < stand.open):
        stand.open, stand.open_ns, stand.event_id = entry.seq, entry.enter_ns, entry.event_id
        stand.one_sided = entry.op in ONE_SIDED


def _inside(stands: Mapping[str, Mapping[int, Stand]]) -> set[int]:
    return {rank for ranks in stands.values() for rank, one in ranks.items() if one.open is not None}


def _told(stands: Mapping[str, Mapping[int, Stand]]) -> frozenset[int]:
    """The ranks of which it is known that they entered something: of others nothing is known, not that they did not."""
    return frozenset(rank for ranks in stands.values() for rank, one in ranks.items() if one.entered is not None)


def _silent(
    stands: Mapping[str, Mapping[int, Stand]], told: frozenset[int], waiting: Iterable[int], evidence: Evidence
) -> frozenset[int]:
    """The ranks in no collective that have not entered one in which another member waits."""
    behind: set[int] = set()
    for comm_id, ranks in stands.items():
        opened = [one.open for one in ranks.values() if one.open is not None]
        if opened:
            first, known = min(opened), evidence.communicators.get(comm_id)
            never = set(known.members) - ranks.keys() if known else set()
            behind |= never | {rank for rank, one in ranks.items() if one.entered is None or one.entered < first}
    return frozenset(behind & told - set(waiting))


def _absent(evidence: Evidence, seen: frozenset[int], comm_ids: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The members of each communicator of which nothing was seen, where the members are known."""
    missing = {}
    for comm_id in comm_ids:
        known = evidence.communicators.get(comm_id)
        unseen = tuple(rank for rank in known.members if rank not in seen) if known else ()
        if unseen:
            missing[comm_id] = unseen
    return missing


def timed_frontier(evidence: Evidence) -> Frontier:
    """Where the ranks stood by GPU timing: a collective without an end, and no later one that ended, did not end."""
    calls, sends = evidence.calls, evidence.sends.calls
    stands: dict[str, dict[int, Stand]] = defaultdict(dict)
    for end in paths_of(calls).ends():
        entered = int(calls.seq[end.last])
        stand = Stand(entered, entered, event_id=evidence.event_id(end.last))
        if end.open is not None:
            stand.open, stand.open_ns = int(calls.seq[end.open]), int(calls.enter_ns[end.open])
            stand.event_id = evidence.event_id(end.open)
            stand.one_sided = calls.ops[int(calls.op[end.open])] in ONE_SIDED
            stand.ended = stand.open - 1
        stands[calls.comm_ids[end.comm]][end.rank] = stand
    last_ns = last_entries(calls)
    seen = frozenset(last_ns)
    waiting = frozenset(_inside(stands) | {path.rank for path in paths_of(sends).ends() if path.open is not None})
    absent = _absent(evidence, seen, evidence.communicators)
    return Frontier(stands, absent, waiting, _silent(stands, seen, waiting, evidence), seen, last_ns)


def live_frontier(evidence: Evidence) -> Frontier:
    """Where the ranks stood at the end of the window, from their calls.

    Whether a call has ended is not asked (the host only enqueues): a rank waits if not all members have entered the
    last collective that it entered, or nobody has taken the other side of its last send or receive.
    """
    calls = evidence.calls
    stands: dict[str, dict[int, Stand]] = defaultdict(dict)
    last_of: dict[int, int] = {}
    paths = paths_of(calls)
    for end in paths.ends():
        stand = Stand(int(calls.seq[end.last]), event_id=evidence.event_id(end.last))
        stands[calls.comm_ids[end.comm]][end.rank] = stand
        before = last_of.get(end.rank)
        if before is None or calls.enter_ns[end.last] > calls.enter_ns[before]:
            last_of[end.rank] = end.last
    longest = paths.longest()
    expected = {
        comm_id: _expected(evidence, comm_id, len(ranks), longest.get(comm_id, 0)) for comm_id, ranks in stands.items()
    }
    unpaired = _unpaired(evidence)
    behind: dict[tuple[str, int], frozenset[int]] = {}
    waiting, waited_for, last_ns = set(), set(), {}
    for rank, position in last_of.items():
        place = comm_id, seq = calls.comm_ids[int(calls.comm[position])], int(calls.seq[position])
        if place not in behind:
            behind[place] = _not_there(stands[comm_id], seq)
        sent_ns, peer = unpaired.get(rank, (0, None))
        last_ns[rank] = int(max(calls.enter_ns[position], calls.done_ns[position], sent_ns))
        if peer is not None and sent_ns > calls.enter_ns[position]:
            waiting.add(rank)
            waited_for.add(peer)
        elif len(stands[comm_id]) - len(behind[place]) < expected[comm_id]:
            waiting.add(rank)
            waited_for |= behind[place]
    seen = frozenset(np.unique(calls.rank).tolist())
    # Where none of those who are waited for is known to be in the communicator, it is one of those who do not wait.
    silent = frozenset(waited_for - waiting) or (seen - waiting if waiting else frozenset())
    # The host of a rank that is inside a call has not stopped: it waits for its GPU, as the others do.
    inside = {sign.rank for sign in open_calls(evidence) if sign.rank is not None and _waits_inside(sign)}
    waiting |= silent & inside
    silent -= inside
    absent = _absent(evidence, seen, evidence.communicators)
    return Frontier(stands, absent, frozenset(waiting), silent, seen, last_entries(calls) | last_ns)


def exits(evidence: Evidence, last_ns: Mapping[int, int]) -> dict[int, Sign]:
    """The ranks whose process ended after their last collective, with the event that says it."""
    found = {}
    processes: dict[tuple[str | None, int | None], int] = {
        (place.node_id, place.pid): rank for rank, place in evidence.places.items() if place.pid is not None
    }
    for sign in evidence.signs:
        if sign.kind == semconv.PROCESS_EXIT:
            rank = processes.get((sign.node_id, sign.pid), sign.rank)
            if rank is not None and sign.at_ns >= last_ns.get(rank, sign.at_ns):
                found[rank] = sign
    return found


def _waits_inside(sign: Sign) -> bool:
    """Whether an open call is one in which a host waits for GPUs."""
    return sign.detail.startswith("nccl") or "Synchronize" in sign.detail or sign.detail.startswith("cudaMemcpy")


def open_calls(evidence: Evidence) -> tuple[Sign, ...]:
    """Calls that were still running when they were last seen, and that their rank has not gone on from."""
    entered_ns = last_entries(evidence.calls)
    return tuple(
        sign
        for sign in evidence.signs
        if sign.kind == semconv.CALL_OPEN and sign.at_ns >= entered_ns.get(-1 if sign.rank is None else sign.rank, 0)
    )


def _not_there(ranks: Mapping[int, Stand], seq: int) -> frozenset[int]:
    # A member whose record of this very number was lost, but that went on, has entered it.
    return frozenset(rank for rank, one in ranks.items() if one.entered is None or one.entered < seq)


def _expected(evidence: Evidence, comm_id: str, seen: int, longest: int) -> int:
    """How many ranks have to enter before a collective of the communicator can end, as far as they are watched."""
    known = evidence.communicators.get(comm_id)
    size = known.nranks if known else 0
    # Where collectives went by with the same ranks unseen, those are not watched: not seeing them says nothing.
    return size if longest <= 1 else min(size, seen)


def _unpaired(evidence: Evidence) -> dict[int, tuple[int, int | None]]:
    """For each rank when it entered its last send or receive, and the peer that has not taken the other side."""
    calls = evidence.sends.calls
    if not len(calls):
        return {}
    sides = np.bincount(calls.collective)
    places = last_places(calls)
    peer = np.where(sides[calls.collective[places]] < 2, evidence.sends.peer[places], UNKNOWN)
    columns = (calls.rank[places], calls.enter_ns[places], peer)
    return {
        rank: (at_ns, None if other == UNKNOWN else other)
        for rank, at_ns, other in zip(*(column.tolist() for column in columns), strict=True)
    }
