"""The first reading of a log: everything is checked and counted, and nothing kept but numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import BinaryIO, Final

from ingero_mcp.importers.inspector.channels import Channels
from ingero_mcp.importers.inspector.lines import read_lines
from ingero_mcp.importers.inspector.ranks import Ranks
from ingero_mcp.importers.inspector.record import Call

MAX_ROWS: Final = 10_000_000
_MAX_VERSIONS: Final = 100


@dataclass(slots=True)
class Survey:
    """What a log holds.

    `rows` counts calls, `lines` the other lines by their kind, `why` is the fault of the first bad one. `dropped`
    counts calls that Inspector could not write. `begin` identifies the log by its first call, which stays the same
    while the log grows. `first_us` and `last_us` are when the first and the last call were written.
    """

    ranks: Ranks = field(default_factory=Ranks)
    channels: Channels = field(default_factory=Channels)
    rows: int = 0
    lines: Counter[str] = field(default_factory=Counter)
    why: str = ""
    dropped: int = 0
    begin: bytes = b""
    first_us: int = 0
    last_us: int = 0
    time_bases: Counter[str] = field(default_factory=Counter)
    not_timed_on_gpu: int = 0
    versions: set[str] = field(default_factory=set)


def survey(file: BinaryIO, length: int) -> Survey:
    """Read the first `length` bytes of a log; raises ValueError where most of it cannot be read."""
    found = Survey()
    for line, entry in read_lines(file, length):
        if isinstance(entry, Call):
            _count(found, entry)
            found.begin = found.begin or _identity(entry, line)
        else:
            found.lines[entry.kind] += 1
            found.dropped += entry.dropped
            found.why = found.why or (entry.why if entry.kind == "bad" else "")
    if found.lines["bad"] > found.rows + found.lines["stats"] + found.lines["proxy"]:
        raise ValueError(f"most lines cannot be used; the first of these: {found.why}")
    if not found.rows:
        raise ValueError("holds no completed operation")
    found.ranks.settle()
    found.channels.settle()
    return found


def _count(found: Survey, call: Call) -> None:
    found.rows += 1
    if found.rows > MAX_ROWS:
        raise ValueError(f"holds more than {MAX_ROWS} operations")
    found.channels.add(call)
    found.ranks.add(call.context)
    found.first_us = found.first_us or call.context.dump_us
    found.last_us = call.context.dump_us
    found.time_bases[call.time_base] += 1
    found.not_timed_on_gpu += not call.timed_on_gpu
    if len(found.versions) < _MAX_VERSIONS:
        found.versions.add(call.context.version)


def _identity(call: Call, line: bytes) -> bytes:
    # Lines of processes can be equal where a line does not say whose it is.
    return blake2b(f"{call.context}".encode() + line, digest_size=16).digest()
