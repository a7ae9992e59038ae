"""The dump of one rank, read and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from ingero_mcp.importers.flight_recorder.entries import Entry, read_entries
from ingero_mcp.importers.flight_recorder.fields import time_ns, words
from ingero_mcp.importers.flight_recorder.groups import Group, groups_of
from ingero_mcp.importers.flight_recorder.identity import host_of, rank_of
from ingero_mcp.importers.flight_recorder.stacks import Stacks

MAX_ROWS: Final = 1 << 20
"""A dump has at most so many rows: those of its entries and groups, and one for itself."""

_MAX_VERSION: Final = 40
_TIMES: Final = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")


@dataclass(frozen=True, slots=True)
class Dump:
    """What a recorder held of one rank.

    `host` is None where nobody says it. `listed` counts the entries in the dump, and is None for a dump without a
    list of them. `latest_ns` is the latest time in it, None if it has none. `digest` is of the rank and of all that is
    kept of the content.
    """

    rank: int
    host: str | None
    world_size: int
    version: str
    groups: tuple[Group, ...]
    entries: tuple[Entry, ...]
    listed: int | None
    latest_ns: int | None
    digest: bytes

    @property
    def rows(self) -> int:
        return len(self.entries) + len(self.groups) + 1

    @property
    def open(self) -> int:
        return sum(entry.is_open for entry in self.entries)


def read_dump(value: Mapping[str, Any], name: str, job: str, stacks: Stacks, faults: Counter[str]) -> Dump:
    """Read a dump of this name; what is odd about it is counted in `faults`.

    Raises ValueError if nothing tells its rank, or it has too many entries.
    """
    groups = groups_of(value, faults)
    rank, odd = rank_of(value, name, groups)
    if rank is None:
        raise ValueError("nothing says whose dump it is: let its name end in its rank, as in _dump_3")
    if odd:
        faults[odd] += 1
    given = value.get("entries")
    listed = given if isinstance(given, list) else None
    if listed is None:
        faults["dumps have no list of entries: what was open is not known"] += 1
    entries = read_entries(listed or (), groups, stacks, faults)
    latest_ns = latest_time_ns(value)
    found = Dump(
        rank=rank,
        host=host_of(value, name),
        world_size=groups.world_size(rank),
        version=words(value.get("version"), _MAX_VERSION),
        groups=groups.sorted(),
        entries=entries,
        listed=None if listed is None else len(listed),
        latest_ns=latest_ns,
        digest=b"",
    )
    if found.rows > MAX_ROWS:
        raise ValueError(f"holds {len(entries)} entries of {len(found.groups)} groups; at most {MAX_ROWS} are read")
    # Two jobs can have the same dump only if nothing happened in it.
    return replace(found, digest=_digest(found, job if latest_ns is None else ""))


def latest_time_ns(value: Mapping[str, Any]) -> int | None:
    """The latest time that a dump tells, None if it tells none that can be true."""
    listed = value.get("entries")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    times = (time_ns(entry.get(key)) for entry in entries for key in _TIMES)
    return max((time for time in times if time is not None), default=None)


def _digest(dump: Dump, job: str) -> bytes:
    content = blake2b(repr((dump.rank, job, dump.version, dump.listed)).encode(), digest_size=16)
    for part in (*dump.groups, *(entry.content for entry in dump.entries)):
        content.update(repr(part).encode())
    return content.digest()
