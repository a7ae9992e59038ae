"""Process groups: who is in them, and the one identifier at which every member arrives."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from typing import Any, Final

from ingero_mcp.importers.flight_recorder.fields import number, words

MAX_RANK: Final = (1 << 20) - 1

_DEFAULT: Final = "default_pg"
_FIRST: Final = "0"
_MAX_NAME: Final = 200
_MAX_MEMBERS: Final = 1 << 22
_RANKS: Final = re.compile(r"\[[0-9, ]*\]")
_STATUS: Final = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")


@dataclass(frozen=True, slots=True)
class Status:
    """The sequence numbers that a group had come to; None where that is unknown, or there was none yet."""

    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as the dump of one of its members has it.

    `ranks` are global, in the order of the group, and empty where the dump does not list them. `comm_id` follows from
    the name, the description and the members and from nothing else, since that is what all members agree on. It is
    None for a group that has only a number: every process counts its own groups.
    """

    name: str
    desc: str
    ranks: tuple[int, ...]
    comm_id: str | None
    status: Status = Status()

    @property
    def is_default(self) -> bool:
        return self.desc == _DEFAULT or self.name in (_FIRST, _DEFAULT)

    def place_of(self, rank: int) -> int | None:
        return self.ranks.index(rank) if rank in self.ranks else None


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one dump. `by_number` names those whose number, which entries also say, is known."""

    by_name: dict[str, Group]
    by_number: dict[int, str]

    def of(self, entry: Mapping[str, Any]) -> Group:
        """The group of an entry; one that the dump does not describe has no ranks."""
        name, desc = _called(entry)
        pg_id = number(entry.get("pg_id"))
        known = self.by_name.get(name or self.by_number.get(-1 if pg_id is None else pg_id, ""))
        if known is not None:
            return known
        if not name and pg_id == 0:
            name, desc = _FIRST, _DEFAULT  # the first group of every process is the default one
        if name:
            group = Group(name, desc, (), _comm_id(name, desc, ()))
        else:
            group = Group(name := f"#{pg_id}", desc, (), None)
        return self.by_name.setdefault(name, group)

    def sorted(self) -> tuple[Group, ...]:
        """All groups, in an order that does not depend on that of the dump."""
        return tuple(sorted(self.by_name.values(), key=lambda group: (len(group.name), group.name)))

    def common_ranks(self) -> frozenset[int] | None:
        """The ranks that are in every group, as the rank is that the dump belongs to; None without any group."""
        members = [frozenset(group.ranks) for group in self.by_name.values() if group.ranks]
        return reduce(frozenset.intersection, members) if members else None

    def world(self) -> tuple[int, ...]:
        """The ranks of the default group; empty where the dump does not list it."""
        return next((group.ranks for group in self.by_name.values() if group.is_default and group.ranks), ())

    def world_size(self, rank: int) -> int:
        """The size of the job: that of the default group, else what the largest known rank needs."""
        known = max((max(group.ranks) for group in self.by_name.values() if group.ranks), default=rank)
        return len(self.world()) or max(known, rank) + 1


def groups_of(dump: Mapping[str, Any], faults: Counter[str]) -> Groups:
    """Read the groups of a dump; what cannot be used is counted in `faults`. Raises ValueError for too many members."""
    config, entries = dump.get("pg_config"), dump.get("entries")
    described = {key: _facts(value) for key, value in config.items()} if isinstance(config, dict) else {}
    names = {key: words(facts.get("name") or key, _MAX_NAME) for key, facts in described.items()}
    statuses = _statuses(dump.get("pg_status"))
    numbers = _numbers(entries if isinstance(entries, list) else [], set(names.values()))
    numbers |= _in_order(sorted(statuses), list(names.values()), numbers)
    status_of = {name: statuses[pg_id] for pg_id, name in numbers.items() if pg_id in statuses}
    by_name: dict[str, Group] = {}
    members = _Members()
    for key, facts in described.items():
        ranks = members.of(facts.get("ranks"))
        if ranks is None:
            faults["process groups whose ranks are no list of ranks"] += 1
        name, desc = names[key], words(facts.get("desc"), _MAX_NAME)
        comm_id = _comm_id(name, desc, ranks or ())
        by_name[name] = Group(name, desc, ranks or (), comm_id, status_of.get(name, Status()))
    return Groups(by_name, numbers)


def _facts(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {"ranks": value}


def _called(entry: Mapping[str, Any]) -> tuple[str, str]:
    """What an entry calls its group: a name, or a name and a description."""
    called = entry.get("process_group")
    if isinstance(called, list | tuple):
        name, desc = (*called, "", "")[:2]
        return words(name, _MAX_NAME), words(desc, _MAX_NAME)
    return words(called, _MAX_NAME), ""


def _numbers(entries: list[Any], names: set[str]) -> dict[int, str]:
    """The names of groups by their number in this process, as far as entries say both."""
    found: dict[int, str] = {}
    for entry in entries:
        if isinstance(entry, dict):
            pg_id, name = number(entry.get("pg_id")), _called(entry)[0]
            if pg_id is not None and name in names:
                found.setdefault(pg_id, name)
    return found


def _in_order(numbers: list[int], names: list[str], known: dict[int, str]) -> dict[int, str]:
    """The same for groups without an entry, of which the status has only the number and the list only the name.

    Both count up as groups are made, so the n-th number is that of the n-th name: believed where there are as many of
    both, and the entries do not say otherwise. A silent rank has no entries, and its status is all that it tells.
    """
    if len(numbers) != len(names) or (len(names) > 1 and not all(name.isdecimal() for name in names)):
        return {}
    ordered = sorted(names, key=int) if len(names) > 1 else names
    pairs = dict(zip(numbers, ordered, strict=True))
    return pairs if all(pairs.get(pg_id) == name for pg_id, name in known.items()) else {}


def _statuses(status: Any) -> dict[int, Status]:
    found = {}
    for key, facts in status.items() if isinstance(status, dict) else ():
        pg_id = number(key)
        if pg_id is not None and isinstance(facts, dict):
            found[pg_id] = Status(*(number(facts.get(name)) for name in _STATUS))
    return found


class _Members:
    """Reads lists of ranks, and counts what has been read: in a pickle one long text can be in many places."""

    def __init__(self) -> None:
        self._read = 0

    def of(self, value: Any) -> tuple[int, ...] | None:
        """Global ranks, from a list or from its text; None if they are none, or one is there twice."""
        if isinstance(value, str):
            self._count(len(value) // 2)
            try:
                value = json.loads(value) if _RANKS.fullmatch(value) else None
            except ValueError:
                return None
        if not isinstance(value, list | tuple):
            return None
        self._count(len(value))
        ranks = tuple(rank for rank in (number(one, MAX_RANK) for one in value) if rank is not None)
        return ranks if len(ranks) == len(value) == len(set(ranks)) else None

    def _count(self, members: int) -> None:
        self._read += members
        if self._read > _MAX_MEMBERS:
            raise ValueError(f"lists more than {_MAX_MEMBERS} members of groups")


def _comm_id(name: str, desc: str, ranks: tuple[int, ...]) -> str:
    # Without the size of the job: a member that never used the default group does not know it.
    return blake2b(json.dumps([name, desc, sorted(ranks)]).encode(), digest_size=8).hexdigest()
