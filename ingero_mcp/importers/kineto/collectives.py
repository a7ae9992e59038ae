"""One row per collective, whichever events of the trace tell of it, in its communicator and with its number there."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.importers.kineto.columns import Detail, Row, Site
from ingero_mcp.importers.kineto.identity import Identity
from ingero_mcp.importers.kineto.links import Links
from ingero_mcp.importers.kineto.operations import (
    ALL_TO_ALL,
    RECV,
    SEND,
    SEND_RECV,
    UNKNOWN_KERNEL,
    datatype,
    is_nccl_kernel,
    operation,
)
from ingero_mcp.importers.kineto.records import ANNOTATION, Record, Said
from ingero_mcp.importers.kineto.survey import KERNEL_NAME, Survey

_MOST_BYTES: Final = (1 << 62) - 1
_BETWEEN_TWO: Final = (SEND, RECV, SEND_RECV)
_REDUCE_SCATTER: Final = "ncclReduceScatter"


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a send or receive, as ranks of the communicator."""

    own: int
    peer: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective before it has its number. `channel` is what it is counted in."""

    record: Record
    said: Said
    name: str
    comm_id: str
    ends: Ends | None
    channel: tuple[str, ...]

    @property
    def number(self) -> int | None:
        """PyTorch's number of the collective in its group; it counts sends and receives apart, and over all peers."""
        return None if self.name in _BETWEEN_TWO else self.said.seq

    @property
    def end_ns(self) -> int | None:
        duration_ns = self.record.duration_ns
        return None if duration_ns is None else self.record.start_ns + duration_ns


def add_collectives(survey: Survey, identity: Identity) -> list[str]:
    """Add the rows of the collectives of a trace and of their communicators; returns what must be known of them."""
    on_gpu = [*survey.kernels, *_alone(survey.annotations, survey.kernels)]
    if on_gpu:
        links = Links(survey.records, survey.columns)
        found = [_collective(record, links.said_of(record), identity) for record in on_gpu]
    else:
        found = [_collective(record, record.said, identity) for record in _told_by_host(survey.records)]
    found = _merged(sorted(found, key=lambda one: one.record.start_ns))
    numbered = {one.comm_id for one in found if one.number is not None}
    counters: Counter[tuple[str, ...]] = Counter()
    for one in found:
        seq, origin = one.number, "init"
        if seq is None:
            origin = "attach"
            # Where others have PyTorch's number, ours would be taken for one of those.
            seq = counters[one.channel] if one.ends or one.comm_id not in numbered else None
            counters[one.channel] += 1
        survey.columns.add(_row(survey, one, identity, seq, origin))
    _add_communicators(survey, found, identity)
    return list(_notes(found, bool(on_gpu)))


def _alone(annotations: list[Record], kernels: list[Record]) -> Iterator[Record]:
    """The annotations on the GPU during which no kernel of NCCL begins: work that other kernels did."""
    starts: defaultdict[int | None, list[int]] = defaultdict(list)
    for kernel in sorted(kernels, key=lambda kernel: kernel.start_ns):
        starts[kernel.stream].append(kernel.start_ns)
    for annotation in annotations:
        begun = starts[annotation.stream]
        first = bisect_left(begun, annotation.start_ns)
        end_ns = annotation.start_ns + (annotation.duration_ns or 0)
        if first == len(begun) or begun[first] > end_ns:
            yield annotation


def _told_by_host(records: list[Record]) -> list[Record]:
    # One collective has up to three events on the host; one of them has the arguments.
    full = [record for record in records if record.said.full and operation(record.said.collective)]
    return full or [record for record in records if record.name.startswith(ANNOTATION) and operation(record.name)]


def _collective(record: Record, said: Said, identity: Identity) -> Collective:
    name = operation(said.collective) or operation(record.name) or UNKNOWN_KERNEL
    group = said.group
    comm_id = group.comm_id if group is not None else _digest(["stream", record.stream, said.size])
    ends = _ends(name, said, identity) if name in (SEND, RECV) else None
    channel: tuple[str, ...] = (comm_id,)
    if ends is not None:
        source, destination = (ends.own, ends.peer) if name == SEND else (ends.peer, ends.own)
        channel = (comm_id, str(source), str(destination))
    elif name in (SEND, RECV):
        name = SEND_RECV
    return Collective(record, said, name, comm_id, ends, channel)


def _ends(name: str, said: Said, identity: Identity) -> Ends | None:
    if said.pair is not None:
        return Ends(*said.pair)
    own = _place(identity.rank, said, identity)
    peer = _place(said.destination if name == SEND else said.source, said, identity)
    if peer is None and own in (0, 1) and said.size == 2:
        peer = 1 - own
    return None if own is None or peer is None else Ends(own, peer)


def _place(rank: int | None, said: Said, identity: Identity) -> int | None:
    """The rank inside the collective's group of a global rank."""
    if rank is None or said.group is None:
        return None
    place = said.group.places.get(rank)
    # The group of the whole job has every rank at its own place, even where the list is abbreviated.
    whole = said.group.ranks is None and said.size is not None and said.size == identity.world_size
    return rank if place is None and whole else place


def _merged(found: list[Collective]) -> list[Collective]:
    """Several kernels with one number are one collective, from the first start to the last end."""
    merged: dict[object, Collective] = {}
    for place, one in enumerate(found):
        key = place if one.number is None else (one.comm_id, one.number)
        before = merged.get(key)
        if before is not None:
            ends = [end for end in (before.end_ns, one.end_ns) if end is not None]
            duration_ns = max(ends) - before.record.start_ns if ends else None
            one = replace(before, record=replace(before.record, duration_ns=duration_ns))
        merged[key] = one
    return list(merged.values())


def _row(survey: Survey, one: Collective, identity: Identity, seq: int | None, origin: str) -> Row:
    timing = semconv.KERNEL_GPU if one.record.thread is None else semconv.HOST_API
    site = Site(one.name, "nccl", timing, on_gpu=one.record.thread is None)
    element, size = datatype(one.said.dtype) if one.said.dtype else ("", 0)
    elements = _elements(one)
    attributes: dict[str, Any] = {semconv.NCCL_OP_TYPE: one.name, semconv.SEQ_ORIGIN: origin}
    own = one.ends.own if one.ends else _place(identity.rank, one.said, identity)
    if own is not None:
        attributes[semconv.NCCL_RANK] = own
    if one.ends:
        attributes[semconv.NCCL_PEER_RANK] = one.ends.peer
    # What the ranks of an all-to-all send may differ, so that its count is no sign of a mismatch.
    if elements is not None and one.name != ALL_TO_ALL:
        attributes[semconv.NCCL_COUNT] = elements
    if element:
        attributes[semconv.NCCL_DATATYPE] = element
    if is_nccl_kernel(one.record.name):
        attributes[KERNEL_NAME] = one.record.name
    amount = elements * size if elements is not None and size else None
    return Row(
        survey.columns.site_number(site),
        one.record.start_ns,
        one.record.duration_ns,
        thread=one.record.thread,
        stream=one.record.stream,
        bytes=amount if amount is None or amount <= _MOST_BYTES else None,
        correlation=one.record.correlation,
        detail=Detail(
            attrs=json.dumps(attributes, separators=(",", ":"))[1:-1],
            comm_id=one.comm_id,
            coll_seq=seq,
            nranks=one.said.size,
            trace_id=_trace_id(identity.job_id, one.comm_id, seq) if origin == "init" else None,
        ),
    )


def _elements(one: Collective) -> int | None:
    """The elements that NCCL's own count means: what one rank gives, of a reduce-scatter what it gets."""
    said = one.said
    if one.name in (_REDUCE_SCATTER, RECV):
        return said.out_elements or (said.in_elements if one.name == RECV else None)
    return None if one.name == SEND_RECV else said.in_elements


def _add_communicators(survey: Survey, found: list[Collective], identity: Identity) -> None:
    """A point for each process group that was used, at its first use in the trace."""
    site = survey.columns.site_number(Site(semconv.COMMUNICATOR, "nccl", None))
    seen = set()
    for one in found:
        group = one.said.group
        if group is None or group.comm_id in seen:
            continue
        seen.add(group.comm_id)
        listed = identity.memberships.get(group.name, ())
        ranks = group.ranks or (listed if len(listed) == group.size else None)
        attributes: dict[str, Any] = {semconv.COMM_NAME: group.name}
        if group.desc:
            attributes[semconv.COMM_DESC] = group.desc
        if ranks:
            attributes[semconv.COMM_RANKS] = list(ranks)
        attrs = json.dumps(attributes, separators=(",", ":"))[1:-1]
        detail = Detail(attrs=attrs, comm_id=group.comm_id, nranks=group.size)
        survey.columns.add(Row(site, one.record.start_ns, None, detail=detail))


def _notes(found: list[Collective], on_gpu: bool) -> Iterator[str]:
    guessed = sum(one.said.group is None for one in found)
    uncounted = sum(one.number is None for one in found)
    if guessed:
        yield (
            f"{guessed} of {len(found)} collectives do not name their process group: their stream stands for the "
            "communicator, and that the same stream is the same communicator on other ranks is a guess"
        )
    if uncounted:
        yield (
            f"{uncounted} of {len(found)} collectives do not tell their sequence number: they are counted in this "
            "trace, and the counts of other ranks begin elsewhere if their traces do"
        )
    if found and not on_gpu:
        yield "the trace has no kernels of NCCL: its collectives were timed on the host, which only enqueues them"


def _trace_id(job_id: str, comm_id: str, seq: int | None) -> str | None:
    if seq is None or seq >= 10**16:
        return None
    return _digest([job_id, comm_id]) + f"{seq:016d}"


def _digest(parts: list[Any]) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
