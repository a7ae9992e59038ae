"""Logs of the NCCL Inspector plugin: `<host>-pid<pid>.log`, one per process, formats v4.0 to v4.4.

A line for a completed collective, send or receive becomes one event; traces of the network proxy are left out.

- Ranks: a log knows ranks inside communicators. The largest communicator of a log is taken for that of the job: the
  rank in it is the global `rank` of the process, its size is `world_size`. That is wrong where no communicator spans
  the job: the size is said in a warning, and where more processes than that wrote into the folder there are no ranks.
- Numbers: NCCL counts collectives per communicator and function, so each function of a communicator has a `comm_id`
  of its own (see channels.py); `nccl.comm_hash` is what the log calls the communicator.
- Time: a verbose log (NCCL_INSPECTOR_DUMP_VERBOSE=1) says when the kernel started. Otherwise the start is the time
  at which the record was written less the duration: too late by up to a dump interval, not comparable between ranks,
  and marked with `ingero.time_base` = dump.
- Durations: kernel_gpu where the GPU was measured, host_api where Inspector watched from the CPU.
- Job: `inspector:` and the name of the folder, which is where the processes of a job write.

The log is read twice, once to check and count everything, once to hand it out. A log that has grown since it was
imported can be imported again: its events keep their numbers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.inspector.events import EventBatches
from ingero_mcp.importers.inspector.lines import MAX_LINE, is_inspectors, parse, read_lines
from ingero_mcp.importers.inspector.record import Call
from ingero_mcp.importers.inspector.siblings import outnumber
from ingero_mcp.importers.inspector.survey import MAX_ROWS, Survey, survey
from ingero_mcp.importers.reading import reading
from ingero_mcp.importers.text import one_line

KIND: Final = "NCCL Inspector log"
ACCEPTS: Final = "JSON lines of the plugin"

MAX_BYTES: Final = 8 << 30

_KNOWN_VERSION: Final = re.compile(r"v4\.[0-4]|")
_FIRST_LINES: Final = 8
_CHUNK: Final = 1 << 20
_MAX_FOLDER: Final = 100
_SEQ_BITS: Final = MAX_ROWS.bit_length()


def mismatch(path: Path) -> str:
    """Why `path` is not a log of Inspector, judged by its first lines; empty if it is one, sound or not."""
    try:
        if not path.is_file():
            return "not a file"
        with path.open("rb") as file:
            lines = [line for _ in range(_FIRST_LINES) if (line := file.readline(MAX_LINE))]
    except OSError as error:
        return one_line(error)
    return "" if any(map(_is_inspectors, lines)) else "no records of Inspector"


def read(path: Path, names: Names | None = None) -> Import:
    """Read and check a whole log; `names` are for what it does not say.

    Raises ImportFileError for a file of which most lines cannot be used.
    """
    try:
        with reading(path):
            with path.open("rb") as file:
                length = os.fstat(file.fileno()).st_size
                if length > MAX_BYTES:
                    raise ValueError(f"is larger than {MAX_BYTES} bytes")
                found = survey(file, length)
                digest = _digest(file, length)
            is_larger = outnumber(path, found.ranks.world_size, found.first_us, found.last_us)
    except ValueError as error:
        raise ImportFileError(f"{one_line(path.name)} {one_line(error, 400)}; nothing was stored") from error
    if is_larger:
        found.ranks.forget()
    events = EventBatches(found, names or Names(), _job_id(path), _first_seq(found.begin))
    return Import(
        kind=KIND,
        digest=digest,
        rows=found.rows,
        ranks=found.ranks.known,
        steps=0,
        world_size=found.ranks.world_size if found.ranks.known else None,
        warnings=tuple(_warnings(found)),
        batches=_batches(path, length, found, events),
    )


def _is_inspectors(line: bytes) -> bool:
    try:
        return is_inspectors(parse(line))
    except ValueError:
        return False


def _batches(path: Path, length: int, found: Survey, events: EventBatches) -> Iterator[pa.RecordBatch]:
    try:
        with path.open("rb") as file:
            yield from events.batches(_calls(file, length, found.rows))
    except (OSError, ValueError, IndexError) as error:
        raise ImportFileError(f"{one_line(path.name)} was changed while it was read; import it again") from error


def _calls(file: BinaryIO, length: int, rows: int) -> Iterator[Call]:
    count = 0
    for _, entry in read_lines(file, length):
        if isinstance(entry, Call):
            count += 1
            yield entry
    if count != rows:
        raise ValueError(f"{count} operations, there were {rows}")


def _digest(file: BinaryIO, length: int) -> str:
    digest = blake2b(digest_size=16)
    file.seek(0)
    while length > 0 and (chunk := file.read(min(length, _CHUNK))):
        digest.update(chunk)
        length -= len(chunk)
    return digest.hexdigest()


def _job_id(path: Path) -> str:
    folder = re.sub(r"[^A-Za-z0-9._-]", "_", path.resolve().parent.name)[:_MAX_FOLDER]
    return f"inspector:{folder or 'unknown'}"


def _warnings(found: Survey) -> Iterator[str]:
    if found.lines["bad"]:
        yield f"{found.lines['bad']} lines were skipped; the first of them: {found.why}"
    if found.lines["cut"]:
        yield "the last line is cut off and was left out, as when a job is killed or still runs"
    if found.lines["proxy"]:
        yield f"{found.lines['proxy']} traces of the network proxy were left out"
    yield from _warnings_of_ranks(found)
    yield from _warnings_of_numbers(found)
    if found.time_bases["dump"]:
        yield (
            f"{found.time_bases['dump']} operations do not say when they started: the time is that of writing less the "
            "duration, not comparable between ranks (NCCL_INSPECTOR_DUMP_VERBOSE=1 records it)"
        )
    if found.not_timed_on_gpu:
        yield f"{found.not_timed_on_gpu} operations were not timed on the GPU"
    unknown = sorted(version for version in found.versions if not _KNOWN_VERSION.fullmatch(version))
    if unknown:
        yield f"format {unknown[0]} is not known here (known: v4.0 to v4.4) and was read as the last of these"


def _warnings_of_ranks(found: Survey) -> Iterator[str]:
    if found.ranks.known:
        yield (
            f"the largest communicator has {found.ranks.world_size} ranks and is taken for the whole job: in a larger "
            "job the global ranks are wrong"
        )
    if found.ranks.unknown:
        yield (
            f"{found.ranks.unknown} processes have no global rank: the largest communicator ({found.ranks.world_size} "
            "ranks) does not tell it, or more processes than that wrote logs here"
        )


def _warnings_of_numbers(found: Survey) -> Iterator[str]:
    if found.dropped:
        yield f"Inspector dropped {found.dropped} operations before it could write them"
    if found.channels.missing:
        yield f"{found.channels.missing} collectives between the first and the last are not in the log"
    if found.channels.repeated:
        yield f"{found.channels.repeated} collectives have no number, since numbers repeat on their communicators"
    if found.channels.unpaired:
        yield f"{found.channels.unpaired} sends and receives have no number, since some are not in the log"


def _first_seq(begin: bytes) -> int:
    # Below 2^51: where producers count, exact in a double, and unlikely to meet the range of another file.
    return int.from_bytes(begin) % (1 << (51 - _SEQ_BITS)) << _SEQ_BITS
