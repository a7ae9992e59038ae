"""Whose a row is: most tables of an agent's database do not say their node, and process ids are used again.

A file of one node leaves no doubt. In a file merged from several, the runs of the agents (sessions) tell whose
time it was; where two ran at once nothing does, and the node stays unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ingero_mcp import semconv

_MOST_EDGES: Final = 64


@dataclass(frozen=True, slots=True)
class Session:
    """A run of an agent; `stop_ns` is 0 while it runs."""

    node: str
    start_ns: int
    stop_ns: int


class Nodes:
    """The nodes that a file names, and `given`, the name for those rows that could say theirs and do not."""

    def __init__(self, named: Iterable[str], given: str, sessions: Iterable[Session]) -> None:
        self.named = tuple(sorted(name for name in named if name))
        self.given = given
        known = sorted(
            (Session(session.node or given, session.start_ns, session.stop_ns) for session in sessions),
            key=lambda session: session.start_ns,
        )
        self._starts: dict[str, list[int]] = {}
        for session in known:
            self._starts.setdefault(session.node, []).append(session.start_ns)
        self._edges, self._owners = _timeline(known)

    @property
    def only(self) -> str | None:
        """The node of every row, if the file leaves no doubt."""
        if len(self.named) > 1:
            return None
        return self.named[0] if self.named else self.given

    def at(self, start_ns: int | None = None, end_ns: int | None = None) -> str:
        """The node of a row that does not say it, from the time it is about."""
        if self.only is not None:
            return self.only
        if not start_ns:
            return semconv.UNKNOWN
        first = bisect_right(self._edges, start_ns) - 1
        last = bisect_right(self._edges, end_ns or start_ns) - 1
        if last - first > _MOST_EDGES:
            return semconv.UNKNOWN
        owners = {self._owners[place] for place in range(max(first, 0), last + 1)} - {""}
        return owners.pop() if len(owners) == 1 else semconv.UNKNOWN

    def run(self, node: str, time_ns: int) -> int:
        """Which run of its agent a time falls into, from 1: between two runs a process id can change hands."""
        starts = self._starts.get(node)
        return max(bisect_right(starts, time_ns), 1) if starts else 1


def _timeline(sessions: Iterable[Session]) -> tuple[list[int], list[str]]:
    """Times at which runs begin or end, and whose time begins there: empty for nobody's, unknown for several."""
    changes: list[tuple[int, int, str]] = []
    for session in sessions:
        changes.append((session.start_ns, 1, session.node))
        if session.stop_ns:
            changes.append((max(session.start_ns, session.stop_ns) + 1, -1, session.node))
    edges: list[int] = []
    owners: list[str] = []
    running: Counter[str] = Counter()
    for time_ns, change, node in sorted(changes):
        running[node] += change
        if not running[node]:
            del running[node]
        owner = next(iter(running), "") if len(running) < 2 else semconv.UNKNOWN
        if edges and edges[-1] == time_ns:
            owners[-1] = owner
        else:
            edges.append(time_ns)
            owners.append(owner)
    return edges, owners


class ProcessNames:
    """What a process was called at a time; a name holds for the run in which it was seen, not for others."""

    def __init__(self, nodes: Nodes, names: Iterable[tuple[int, str, int | None]]) -> None:
        """`names` are process id, name and the time when it was last seen, 0 or None where that is not known."""
        self._nodes = nodes
        self._names: dict[tuple[str, int, int], str] = {}
        for pid, name, seen_ns in names:
            node = nodes.at(seen_ns)
            self._names[node, nodes.run(node, seen_ns or 0), pid] = name

    def at(self, node: str, pid: int, time_ns: int) -> str | None:
        """The name of process `pid` of `node`, None where it is not known."""
        return self._names.get((node, self._nodes.run(node, time_ns), pid))
