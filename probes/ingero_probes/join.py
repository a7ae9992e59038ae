"""Records of the kernel to events of the contract: who the process is, which communicator, which step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Point, Span
from ingero_probes.decode import Call, Exit, Mark, OffCpu, Record
from ingero_probes.discover import Process
from ingero_probes.ranks import Communicator, Place, fold, hash_of_unique_id
from ingero_probes.spans import off_cpu_spans, open_point, span_of
from ingero_probes.steps import Moment, StepClock

HOLD_NS: Final = 5_000_000_000
"""How long an event of a job's first steps waits for the period to become known; then it goes without a step."""

# ncclSuccess and ncclInProgress: a communicator made with blocking=0 is there before its init has ended.
_MADE: Final = (0, 7)


@dataclass(frozen=True, slots=True)
class Job:
    """What the events of one job on this node share."""

    job_id: str | None
    world_size: int | None


@dataclass(slots=True)
class _Member:
    """A traced process, as far as it is known."""

    process: Process
    place: Place
    comms: dict[int, Communicator] = field(default_factory=dict)
    steps: StepClock = field(default_factory=StepClock)
    held: deque[tuple[int, Moment, Span | Point]] = field(default_factory=deque)


class Joiner:
    """Give it records in the order they were made; take events from `ready`.

    `find` describes a process that the scanner has not seen yet; `to_unix` converts monotonic times; `host` tells this
    host from others (any number).
    """

    def __init__(self, find: Callable[[int], Process | None], to_unix: Callable[[int], int], host: int = 0) -> None:
        self._find = find
        self._to_unix = to_unix
        self._host = host
        self._members: dict[int, _Member] = {}
        self._gone: list[_Member] = []

    def meet(self, process: Process) -> None:
        """The scanner saw this process; another one with its pid is gone."""
        known = self._members.get(process.pid)
        if known is not None and known.process.start_ticks == process.start_ticks:
            return
        if known is not None:
            self._gone.append(known)
        self._members[process.pid] = _Member(process, Place(process.launch))

    def part(self, pid: int) -> None:
        """The process is gone; what is held of it is ready."""
        member = self._members.pop(pid, None)
        if member is not None:
            self._gone.append(member)

    def join(self, record: Record) -> None:
        """Take the next record."""
        member = self._member(record.pid)
        match record:
            case Call():
                self._join_call(member, record)
            case OffCpu():
                moment = member.steps.now()
                for span in off_cpu_spans(record, self._to_unix):
                    member.held.append((record.end_ns, moment, span))
            case Mark():
                member.steps.mark(record.step)
                attributes: dict[str, AttributeValue] = {semconv.PID: record.pid, semconv.TID: record.tid}
                note = Point("annotation", self._to_unix(record.time_ns), attributes)
                member.held.append((record.time_ns, member.steps.now(), note))
            case Exit():
                note = Point(semconv.PROCESS_EXIT, self._to_unix(record.time_ns), {semconv.PID: record.pid})
                member.held.append((record.time_ns, member.steps.now(), note))
                self.part(record.pid)

    def ready(self, now_ns: int) -> Iterator[tuple[Job, Span | Point]]:
        """The events whose step is known, or that have waited for it long enough at this monotonic time."""
        for member in self._gone:
            yield from self._release(member, None)
        self._gone.clear()
        for member in self._members.values():
            yield from self._release(member, now_ns - HOLD_NS)

    def open_call(self, call: Call, now_ns: int) -> tuple[Job, Point]:
        """The note about a call in progress."""
        member = self._member(call.pid)
        point = open_point(call, self._comm_of(member, call), now_ns, self._to_unix)
        attributes = _common(member, member.steps.now())
        return _job(member), replace(point, attributes={**point.attributes, **attributes})

    def _member(self, pid: int) -> _Member:
        if pid not in self._members:
            # Its record came before the scanner did; if it is gone already, less is known of it.
            process = self._find(pid) or Process(pid, 0, "", {}, (), False)
            self._members[pid] = _Member(process, Place(process.launch))
        return self._members[pid]

    def _join_call(self, member: _Member, call: Call) -> None:
        kind = call.function.kind
        if kind in ("init", "split"):
            self._learn(member, call)
        comm = self._comm_of(member, call)
        if comm is not None and comm is member.place.world and comm.origin == "init" and kind == "collective":
            member.steps.collective((call.function.name, call.count, call.datatype, call.op, call.peer))
        span = span_of(call, comm, member.place.job_id, self._to_unix)
        member.held.append((call.end_ns, member.steps.now(), span))
        if kind == "wait":
            member.steps.synchronized()
        # Not one that another thread made at the same address since the call began.
        if kind == "destroy" and comm is not None and comm.made_ns < call.start_ns:
            del member.comms[call.comm]

    def _learn(self, member: _Member, call: Call) -> None:
        if call.result not in _MADE or call.made <= 0 or call.unfinished:
            return
        if call.function.kind == "init":
            made = Communicator(hash_of_unique_id(call.unique_id), call.rank, call.nranks, "init", call.end_ns)
        else:
            parent = self._comm_at(member, call.comm)
            if call.number is None:
                return
            # Its size and our rank in it follow from what all ranks of the parent asked for.
            made = Communicator(fold((parent.id, call.number, call.op)), None, None, parent.origin, call.end_ns)
        member.comms[call.made] = made
        world = member.place.world
        member.place.learn(made)
        if member.place.world is not world:
            member.steps = StepClock()

    def _comm_of(self, member: _Member, call: Call) -> Communicator | None:
        """The communicator of a call: the one it made, for inits and splits, if it made one."""
        if call.function.kind in ("init", "split"):
            return member.comms.get(call.made) if call.end_ns else None
        return self._comm_at(member, call.comm) if call.comm else None

    def _comm_at(self, member: _Member, address: int) -> Communicator:
        if address not in member.comms:
            # Made before we came. Its own id, which joins with nobody, rather than a guess.
            own = fold((self._host, member.process.pid, member.process.start_ticks, address))
            member.comms[address] = Communicator(own, None, None, "attach", 0)
        return member.comms[address]

    def _release(self, member: _Member, until_ns: int | None) -> Iterator[tuple[Job, Span | Point]]:
        while member.held:
            ended_ns, moment, event = member.held[0]
            waits = until_ns is not None and ended_ns > until_ns
            if waits and member.place.world is not None and member.steps.is_undecided:
                return
            member.held.popleft()
            yield _job(member), replace(event, attributes={**event.attributes, **_common(member, moment)})


def _job(member: _Member) -> Job:
    return Job(member.place.job_id, member.place.world_size)


def _common(member: _Member, moment: Moment) -> dict[str, AttributeValue]:
    """What is the same for all events of a process, and the step."""
    attributes: dict[str, AttributeValue] = {}
    if member.process.name:
        attributes[semconv.PROCESS] = member.process.name
    if member.place.rank is not None:
        attributes[semconv.RANK] = member.place.rank
        attributes[semconv.RANK_SOURCE] = member.place.rank_source
    if member.place.local_rank is not None:
        attributes[semconv.LOCAL_RANK] = member.place.local_rank
    step = member.steps.step_of(moment)
    if step is not None:
        attributes[semconv.STEP], attributes[semconv.STEP_SOURCE] = step
    return attributes
