"""Dumps of PyTorch's Flight Recorder, versions 1.1 to 2.10: pickles of one rank, or JSON of one or of many.

Every entry becomes one event, of the collective (or the send or receive) that its rank called. Every process group
becomes a point with its members, and every dump one with its counts, so that a recorder without entries is not the
same as a dump that is not there. What a dump does not say is not invented:

- Ranks: from the dump, from the name (its last number), or the only rank that is in all groups.
- Time: an event begins when the operation was called; it ends when the watchdog found it complete, which is later
  than the fact, and has no end if it did not.
- Sequence numbers are PyTorch's own: of a group's collectives, or of the sends and receives of a rank in it.
- Hosts: only names say them (nccl_trace_rank_<host>_<rank>).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pyarrow as pa

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.flight_recorder.beside import time_beside_ns
from ingero_mcp.importers.flight_recorder.document import MAX_BYTES, Document, load, mismatch_of
from ingero_mcp.importers.flight_recorder.dump import MAX_ROWS, Dump, read_dump
from ingero_mcp.importers.flight_recorder.entries import Entry
from ingero_mcp.importers.flight_recorder.events import Place, event_batches
from ingero_mcp.importers.flight_recorder.stacks import Stacks
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.reading import reading
from ingero_mcp.importers.text import one_line

KIND: Final = "Flight Recorder dump"
ACCEPTS: Final = "PyTorch's Flight Recorder: a pickle named after its rank (_dump_3), or JSON of one rank or many"
_MOST_NAMES: Final = 5
_MAX_JOB: Final = 200


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was read: its dumps with what their rows have in common."""

    dumps: tuple[tuple[Dump, Place], ...]
    stacks: Stacks
    warnings: tuple[str, ...]


def mismatch(path: Path) -> str:
    """Why `path` holds no dump, judged by its beginning and its end; empty if it may hold one."""
    try:
        return mismatch_of(path) if path.is_file() else "not a file"
    except OSError as error:
        return one_line(error)


def read(path: Path, names: Names | None = None) -> Import:
    """Read and check a file with one dump or several; `names` are for what it does not say itself.

    Raises ImportFileError for a file that is broken, hostile or too large, or does not say whose dump it is.
    """
    names = names or Names()
    try:
        found = _read(path, names)
    except ValueError as error:
        raise ImportFileError(f"{one_line(path.name)}: {one_line(error, 400)}; nothing was stored") from error
    dumps = [dump for dump, _ in found.dumps]
    return Import(
        kind=KIND,
        digest=blake2b(b"".join(dump.digest for dump in dumps), digest_size=16).hexdigest(),
        rows=sum(dump.rows for dump in dumps),
        ranks=len(dumps),
        steps=0,
        world_size=max(dump.world_size for dump in dumps),
        warnings=found.warnings,
        batches=_batches(found),
        context=found.stacks.batches(names.cluster, found.dumps[0][1].node),
        context_rows={"stacks": len(found.stacks)} if len(found.stacks) else {},
    )


def _batches(found: _Read) -> Iterator[pa.RecordBatch]:
    for dump, place in found.dumps:
        yield from event_batches(dump, place)


def _read(path: Path, names: Names) -> _Read:
    document = load(_read_bytes(path))
    job = _job(path, document)
    _refuse_too_many(document)
    stacks, faults = Stacks(), Counter[str]()
    if document.others:
        faults["values beside the dumps were left out"] += document.others
    dumps = [
        read_dump(value, path.name if name is None else name, job, stacks, faults) for name, value in document.dumps
    ]
    _refuse_twice(dumps)
    times = [dump.latest_ns for dump in dumps if dump.latest_ns is not None]
    time_ns = max(times, default=None)
    if time_ns is None:
        time_ns, said = time_beside_ns(path)
        faults[f"dumps tell no time that can be true: they are put {said}"] += len(dumps)
    placed = tuple(
        (dump, Place(names.cluster, dump.host or names.node, job, dump.latest_ns or time_ns)) for dump in dumps
    )
    return _Read(placed, stacks, (*_warnings(dumps), *(f"{count} {text}" for text, count in faults.items())))


def _read_bytes(path: Path) -> bytes:
    with reading(path), path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes; JSON of many ranks can be divided by rank")
    return data


def _job(path: Path, document: Document) -> str:
    # The ranks of a job lie in one folder or in one file: its name is the only one that they share.
    is_many = document.dumps[0][0] is not None
    return f"flight-recorder:{one_line(path.stem if is_many else path.resolve().parent.name, _MAX_JOB)}"


def _refuse_too_many(document: Document) -> None:
    listed = sum(len(entries) for _, dump in document.dumps if isinstance(entries := dump.get("entries"), list))
    if listed > MAX_ROWS:
        raise ValueError(f"holds {listed} entries; at most {MAX_ROWS} are read")


def _refuse_twice(dumps: list[Dump]) -> None:
    counts = Counter(dump.rank for dump in dumps)
    rank, count = counts.most_common(1)[0]
    if count > 1:
        raise ValueError(f"holds {count} dumps of rank {rank}")


def _warnings(dumps: list[Dump]) -> Iterator[str]:
    entries = [(dump, entry) for dump in dumps for entry in dump.entries]
    unknown = sorted({entry.operation.event for _, entry in entries if not entry.operation.is_known})
    if unknown:
        more = f" and {len(unknown) - _MOST_NAMES} more" if len(unknown) > _MOST_NAMES else ""
        yield f"operations that NCCL has no name for: {', '.join(unknown[:_MOST_NAMES])}{more}"
    for count, text in (
        (
            sum(entry.created_ns is None for _, entry in entries),
            "entries have no time that can be true: they are put at the latest time of their dump",
        ),
        (
            sum(entry.group.comm_id is None for _, entry in entries),
            "entries name their group only by a number of their own process: they join no communicator",
        ),
        (sum(entry.seq is None and not entry.is_coalesced for _, entry in entries), "entries have no sequence number"),
        (
            sum(_is_of_another(entry, dump.rank) for dump, entry in entries),
            "sends and receives say another rank in their group than that of their dump",
        ),
    ):
        if count:
            yield f"{count} {text}"


def _is_of_another(entry: Entry, rank: int) -> bool:
    own, ranks = entry.operation.own, entry.group.ranks
    return own is not None and own < len(ranks) and ranks[own] != rank
