"""Which events a question is about: the WHERE clause, and what to say when nothing matches it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from ingero_mcp.errors import GuardError
from ingero_mcp.semconv import ALIASES
from ingero_mcp.sqlguard import literal
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.nearest import listed, nearest, quoted
from ingero_mcp.windows import Window, iso

_LONGEST: Final = 1000  # of a name as SQL
_NAMES: Final = 2000  # how many names are read to look for a near one


@dataclass(frozen=True, slots=True)
class Scope:
    """Events of a cluster, node, rank and metric within a window; None means any."""

    cluster_id: str | None = None
    node_id: str | None = None
    rank: int | None = None
    metric: str | None = None
    window: Window | None = None

    def where(self) -> str:
        """The condition as SQL text."""
        terms = [
            equal(column, value) if isinstance(value, str) else f"{column} = {value}"
            for column, value in (
                ("cluster_id", self.cluster_id),
                ("node_id", self.node_id),
                ("rank", self.rank),
            )
            if value is not None
        ]
        if self.metric is not None:
            names = ", ".join(map(as_sql, spellings(self.metric)))
            terms.append(f"metric_name IN ({names})")
        if self.window is not None:
            terms.append(f"timestamp_ns >= {self.window.start_ns} AND timestamp_ns < {self.window.end_ns}")
        return " AND ".join(terms) or "true"


def equal(column: str, name: str) -> str:
    """The condition that a column holds a name, as SQL. A very long one is told by its hash: SQL may not be as long as
    names that somebody sends."""
    text = as_sql(name)
    if len(text) <= _LONGEST:
        return f"{column} = {text}"
    return f"sha256({column}) = '{sha256(name.encode()).hexdigest()}'"


def as_sql(value: str | int) -> str:
    """The value as SQL. The guard refuses invisible characters in a text, yet names of nodes may have them."""
    try:
        return literal(value)
    except GuardError:
        pieces = re.findall(r"[!-~]+|[^!-~]", str(value))
        return f"concat({', '.join(_piece(piece) for piece in pieces)})"


def _piece(piece: str) -> str:
    return literal(piece) if piece.isascii() and piece.isprintable() else f"chr({ord(piece)})"


def spellings(metric: str) -> tuple[str, ...]:
    """Every name under which the metric may be stored, its own first."""
    own = ALIASES.get(metric, metric)
    return (own, *(alias for alias, name in ALIASES.items() if name == own))


def explain_empty(call: Call, scope: Scope) -> tuple[str, ...]:
    """Why the scope has no events: none in the window, a name that does not exist, or an empty database."""
    everything = call.window(None)
    if everything is None:
        return ("the database has no events yet",)
    outside = call.read(
        f"SELECT count(*), min(timestamp_ns), max(timestamp_ns) FROM events WHERE {replace(scope, window=None).where()}"
    ).rows[0]
    count, first, last = outside
    if isinstance(first, int) and isinstance(last, int):
        return (f"none in this window; {count} such events lie between {iso(first)} and {iso(last)}",)
    hints = [*_unknown_names(call, scope)]
    if not hints:
        hints = ["no event has all of these together"]
    return (*hints, f"the database has events from {everything.absolute.replace('/', ' to ')}")


def metric_names(call: Call, scope: Scope) -> dict[str, int]:
    """Metric, span and event names in the scope with their number of events, most frequent first."""
    rows = call.read(
        f"SELECT metric_name, count(*) AS events FROM events WHERE {scope.where()} "
        f"GROUP BY metric_name ORDER BY events DESC, metric_name LIMIT {_NAMES}",
        _NAMES,
    )
    return {str(name): int(str(count)) for name, count in rows.rows if name is not None}


def _unknown_names(call: Call, scope: Scope) -> list[str]:
    hints: list[str] = []
    if scope.metric is not None:
        hints += _unknown("metric", scope.metric, list(metric_names(call, Scope())), spellings(scope.metric))
    if scope.node_id is not None or scope.cluster_id is not None:
        rows = call.read(f"SELECT cluster_id, node_id FROM nodes ORDER BY ALL LIMIT {_NAMES}", _NAMES).rows
        for what, value, place in (("cluster", scope.cluster_id, 0), ("node", scope.node_id, 1)):
            if value is not None:
                hints += _unknown(what, value, list(dict.fromkeys(str(row[place]) for row in rows)), (value,))
    return hints


def _unknown(what: str, asked: str, known: list[str], accepted: tuple[str, ...]) -> list[str]:
    if any(name in known for name in accepted) or len(known) == _NAMES:
        return []
    near = nearest(asked, known)
    hint = f"nearest: {listed(near)}; " if near else ""
    return [f"there is no {what} {quoted(asked)}; {hint}existing: {listed(known)}"]
