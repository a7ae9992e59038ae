"""Traces of the PyTorch profiler (Kineto): a JSON object with the list traceEvents, plain or gzipped, of one rank.

What a trace becomes:

- Collectives: one row each, timed by the kernel of NCCL on the GPU (`kernel_gpu`). Name, size and process group come
  from the kernel's arguments (PyTorch 2.2 and later) or from the operator that launched it. A trace without such
  kernels, taken on a CPU, has them as the host saw them (`host_api`).
- Communicators: a point `nccl.communicator` for each process group.
- `gpu.kernel`, `gpu.memcpy`, `gpu.memset`: other work of the GPU. Calls of CUDA under their own names.
- `step`: the steps of the profiler; every row has the step in which it began.

Operators and Python functions are counted, and not imported. Times are exact to the nanosecond. What a trace does not
say is not invented: see the warnings. A trace that is not valid JSON is repaired where that is safe, else refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.kineto import identity as kineto_identity
from ingero_mcp.importers.kineto import time_base as kineto_time
from ingero_mcp.importers.kineto.collectives import add_collectives
from ingero_mcp.importers.kineto.columns import MAX_ROWS
from ingero_mcp.importers.kineto.document import EVENTS, Document, read_document
from ingero_mcp.importers.kineto.events import Rows, event_batches
from ingero_mcp.importers.kineto.identity import Identity, identify
from ingero_mcp.importers.kineto.source import beginning, chunks
from ingero_mcp.importers.kineto.steps import add_steps, steps_of
from ingero_mcp.importers.kineto.survey import Survey
from ingero_mcp.importers.kineto.time_base import TimeBase, plausible, time_base
from ingero_mcp.importers.reading import reading
from ingero_mcp.importers.text import one_line

KIND: Final = "Kineto trace"
ACCEPTS: Final = "JSON with traceEvents, plain or gzipped, written by the PyTorch profiler"

_LOOKED_AT: Final = 8 << 20  # the list of the process groups of a large job may come first
_OBJECT: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")
_SEQ_BITS: Final = MAX_ROWS.bit_length()
_MEMBERS: Final = kineto_identity.MEMBERS | {kineto_time.MEMBER}
_MOST_NAMED: Final = 6


def mismatch(path: Path) -> str:
    """Why `path` is not such a trace, judged by the beginning of its content; empty if it is one, sound or not."""
    try:
        if not path.is_file():
            return "not a file"
        text = beginning(path, _LOOKED_AT)
    except OSError as error:
        return one_line(error)
    if not _OBJECT.match(text):
        return "not a JSON object"
    return "" if f'"{EVENTS}"'.encode() in text else f"JSON without {EVENTS} in its first {_LOOKED_AT} bytes"


def read(path: Path, names: Names | None = None) -> Import:
    """Read and check a whole trace; `names` are for what it does not say itself.

    Raises ImportFileError for a file that is damaged, cut off, too large, or no JSON that could be repaired.
    """
    names = names or Names()
    survey, content = Survey(), blake2b(digest_size=16)
    try:
        with reading(path):
            with path.open("rb") as file:
                document = read_document(_hashed(chunks(file), content), _MEMBERS, survey.take)
            return _import(path, names, survey, document, content)
    except ValueError as error:
        raise ImportFileError(f"{one_line(path.name)} {one_line(error, 400)}; nothing was stored") from error


def _hashed(portions: Iterator[bytes], content: blake2b) -> Iterator[bytes]:
    for portion in portions:
        content.update(portion)
        yield portion


def _import(path: Path, names: Names, survey: Survey, document: Document, content: blake2b) -> Import:
    identity = identify(path, document.members, survey.groups.known.values(), names)
    notes = add_collectives(survey, identity)
    steps = add_steps(survey.columns, survey.marks)
    start_ns = survey.columns.numbers("start_ns")
    base = time_base(document.members.get(kineto_time.MEMBER), start_ns)
    times_ns = start_ns + base.offset_ns
    possible = np.flatnonzero(plausible(times_ns))
    if identity.named:
        # The same bytes under the name of another rank are other events.
        content.update(f"rank {identity.rank}".encode())
    process_id = _process_id(survey)
    rows = Rows(
        columns=survey.columns,
        order=possible[np.argsort(times_ns[possible], kind="stable")],
        times_ns=times_ns,
        steps=steps_of(survey.columns, survey.marks),
        relative=base.relative,
        process_id=process_id,
        process=survey.processes.get(process_id) if process_id is not None else None,
    )
    return Import(
        kind=KIND,
        digest=content.hexdigest(),
        rows=len(possible),
        ranks=0 if identity.rank is None else 1,
        steps=steps,
        world_size=identity.world_size,
        warnings=tuple(_warnings(survey, document, identity, base, len(start_ns) - len(possible), notes)),
        batches=event_batches(rows, identity, names.cluster, _first_seq(content.digest())),
    )


def _process_id(survey: Survey) -> int | None:
    records = [record.thread for record in survey.records if record.thread]
    marks = [mark.thread for mark in survey.marks if mark.thread]
    known = {thread[0] for thread in [*survey.columns.threads, *records, *marks] if thread[0] is not None}
    return known.pop() if len(known) == 1 else None


def _warnings(
    survey: Survey, document: Document, identity: Identity, base: TimeBase, impossible: int, notes: list[str]
) -> Iterator[str]:
    if document.repaired:
        yield (
            f"{document.repaired} events were not valid JSON and have been repaired (backslashes, control characters "
            f"or bytes that are not UTF-8), the first at byte {document.first_repair}"
        )
    for why, count in sorted(survey.skipped.items()):
        yield f"{count} events {why} were skipped"
    if document.unreadable:
        yield f"{document.unreadable} events were skipped: nested too deep"
    if impossible:
        yield f"{impossible} events at impossible times (before 2020 or after 2099) were skipped"
    yield from base.warnings
    if identity.rank is None:
        yield "the trace does not tell its rank, and its name does not either: rank is empty"
    yield from notes
    if survey.left:
        named = ", ".join(f"{count} {one_line(what, 40)}" for what, count in survey.left.most_common(_MOST_NAMED))
        others = survey.left.total() - sum(count for _, count in survey.left.most_common(_MOST_NAMED))
        yield f"not imported: {named}" + (f" and {others} other events" if others else "")


def _first_seq(digest: bytes) -> int:
    # Below 2^51: where producers count, exact in a double, and unlikely to meet the range of another file.
    return int.from_bytes(digest) % (1 << (51 - _SEQ_BITS)) << _SEQ_BITS
