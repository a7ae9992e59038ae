"""Process groups as collectives name them, and the communicator that each stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from ingero_mcp.importers.kineto.units import integer
from ingero_mcp.importers.text import one_line

MOST_RANKS: Final = 1 << 20

_MOST_TEXT: Final = 8 << 20
_MOST_GROUPS: Final = 100_000
_LONGEST_NAME: Final = 200
_LIST: Final = re.compile(r"\[(?:[0-9]{1,7}(?:, ?[0-9]{1,7})*+)?\]")


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. `ranks` are the global ranks of its members in its order, None where the trace abbreviates
    them ("[0, 1, ..., 127]"); `size` is None where it is not told. `comm_id` is the same in the traces of all members.
    """

    name: str
    desc: str
    ranks: tuple[int, ...] | None
    size: int | None
    comm_id: str
    places: Mapping[int, int]
    """The rank inside the group of each global rank; empty where `ranks` is None."""


class Groups:
    """Every group of a trace, each read once however often it is named."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], Group] = {}
        self._text = 0

    def of(self, args: Mapping[str, Any]) -> Group | None:
        """The group that the arguments of an event name; None if they do not. Raises ValueError for too many."""
        name, ranks, size = (args.get(key) for key in ("Process Group Name", "Process Group Ranks", "Group size"))
        if isinstance(ranks, list):
            ranks = _joined(ranks)
        if not isinstance(name, str) or not isinstance(ranks, str):
            return None
        key = (name, ranks, size if isinstance(size, str) else "")
        group = self.known.get(key)
        if group is None:
            self._text += len(name) + len(ranks)
            if self._text > _MOST_TEXT or len(self.known) >= _MOST_GROUPS:
                raise ValueError(f"names more than {_MOST_GROUPS} process groups, or with more text than is read")
            group = self.known[key] = _group(*key, args.get("Process Group Description"))
        return group


def read_ranks(text: object) -> tuple[int, ...] | None:
    """The ranks of a list, or of a text that holds one in full; None for anything else, and for an empty list."""
    if isinstance(text, list):
        text = _joined(text)
    if not isinstance(text, str) or not _LIST.fullmatch(text):
        return None
    ranks = tuple(int(rank) for rank in text[1:-1].split(",")) if len(text) > 2 else ()
    fits = ranks and max(ranks) < MOST_RANKS and len(set(ranks)) == len(ranks)
    return ranks if fits else None


def _joined(ranks: list[Any]) -> str:
    return f"[{', '.join(str(rank) for rank in ranks)}]"


def _group(name: str, ranks: str, size: str, desc: object) -> Group:
    members = read_ranks(ranks)
    # An abbreviated list is hashed as it stands: all members write the same.
    text = json.dumps([name, list(members) if members else "".join(ranks.split())])
    return Group(
        name=one_line(name, _LONGEST_NAME),
        desc=one_line(desc, _LONGEST_NAME) if isinstance(desc, str) else "",
        ranks=members,
        size=integer(size, 1, MOST_RANKS) or (len(members) if members else None),
        comm_id=blake2b(text.encode(), digest_size=8).hexdigest(),
        places={rank: place for place, rank in enumerate(members or ())},
    )
