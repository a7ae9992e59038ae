"""Who wrote a trace: rank, size of the job, host and job, from what it says itself and then from its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingero_mcp.importers.imported import Names
from ingero_mcp.importers.kineto.groups import MOST_RANKS, Group, read_ranks
from ingero_mcp.importers.kineto.units import integer
from ingero_mcp.importers.text import one_line

MEMBERS: Final = frozenset({"distributedInfo", "traceName", "hostname", "host_name", "host"})
"""The members of a trace that are looked at."""

_RANK: Final = re.compile(r"rank[-_. ]?([0-9]{1,7})(?![0-9])", re.IGNORECASE)
_NUMBER: Final = re.compile(r"[0-9]+")
# The name that torch.profiler.tensorboard_trace_handler gives: HOST_PID.TIME.pt.trace.json.
_WORKER: Final = re.compile(r"([A-Za-z0-9][\w.-]{0,252})_[0-9]{1,10}\.[0-9]{10,20}\.pt\.trace\.json(?:\.gz)?")
_HOST: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,252}")
_WORLD: Final = "default_pg"
_LONGEST_JOB: Final = 120


@dataclass(frozen=True, slots=True)
class Identity:
    """`rank` and `world_size` are None where nothing tells them. `named` is true where the rank is from the name."""

    rank: int | None
    world_size: int | None
    node_id: str
    job_id: str
    named: bool
    memberships: Mapping[str, tuple[int, ...]]
    """The ranks of process groups by name, as the trace lists them apart from its events."""


def identify(path: Path, members: Mapping[str, Any], groups: Iterable[Group], names: Names) -> Identity:
    """Put together who wrote the trace at `path`; `members` are those of its `MEMBERS` that it has."""
    known = tuple(groups)
    info = members.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    world_size = integer(info.get("world_size"), 1, MOST_RANKS)
    world_size = world_size or next((group.size for group in known if group.desc == _WORLD), None)
    rank = integer(info.get("rank"), 0, (world_size or MOST_RANKS) - 1)
    named = False
    if rank is None:
        rank = _named_rank(path.name, known, world_size)
        named = rank is not None
    if rank is None:
        rank = _only_member(known)
    return Identity(
        rank=rank,
        world_size=world_size,
        node_id=_host(path.name, members) or names.node,
        job_id=_job(path),
        named=named,
        memberships=_memberships(info.get("pg_config")),
    )


def _named_rank(name: str, groups: tuple[Group, ...], world_size: int | None) -> int | None:
    worker = _WORKER.fullmatch(name)
    if match := _RANK.search(name):
        rank = int(match[1])
        return rank if rank < (world_size or MOST_RANKS) else None
    numbers = _NUMBER.findall(name.partition(".json")[0])
    if worker or not numbers or len(numbers[-1]) > 7:
        return None
    # A bare number is a rank only if there is such a rank.
    rank = int(numbers[-1])
    members = {member for group in groups for member in group.ranks or ()}
    return rank if rank in members or (world_size is not None and rank < world_size) else None


def _only_member(groups: tuple[Group, ...]) -> int | None:
    """The one rank that is in every group: the writer is in all of them."""
    common: set[int] | None = None
    for group in groups:
        if group.ranks:
            common = set(group.ranks) if common is None else common & set(group.ranks)
    return next(iter(common)) if common is not None and len(common) == 1 else None


def _host(name: str, members: Mapping[str, Any]) -> str:
    for key in ("hostname", "host_name", "host"):
        given = members.get(key)
        if isinstance(given, str) and _HOST.fullmatch(given):
            return given
    trace_name = members.get("traceName")
    written = trace_name.rpartition("/")[2] if isinstance(trace_name, str) else ""
    for candidate in (name, written):
        if match := _WORKER.fullmatch(candidate):
            return match[1]
    return ""


def _job(path: Path) -> str:
    return f"kineto:{one_line(path.absolute().parent.name, _LONGEST_JOB) or 'trace'}"


def _memberships(config: object) -> dict[str, tuple[int, ...]]:
    # A list of groups, or an object of them by name.
    listed = list(config.values()) if isinstance(config, dict) else config
    found = {}
    for group in listed if isinstance(listed, list) else ():
        if isinstance(group, dict) and isinstance(group.get("pg_name"), str):
            ranks = read_ranks(group.get("ranks"))
            if ranks:
                found[one_line(group["pg_name"])] = ranks
    return found
