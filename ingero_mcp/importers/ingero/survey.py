"""The first reading of an agent's database: every row is read, counted and hashed before any is handed out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from ingero_mcp.importers.ingero import tables as tables
from ingero_mcp.importers.ingero.context import SOURCES
from ingero_mcp.importers.ingero.events import CHUNK_ROWS
from ingero_mcp.importers.ingero.nodes import Session
from ingero_mcp.importers.ingero.sqlite import Reader, Row

_MOST_NODES: Final = 10_000
_MOST_SESSIONS: Final = 100_000
_MOST_PROCESS_NAMES: Final = 1_000_000
_MOST_RANKS: Final = 1 << 20


@dataclass(slots=True)
class Survey:
    """What a file holds. `skipped` counts rows by table and the column that spoils them, `lost` single values."""

    rows: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, Counter[str]] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    nodes: set[str] = field(default_factory=set)
    nameless: int = 0
    ranks: set[int] = field(default_factory=set)
    world_sizes: set[int] = field(default_factory=set)
    sessions: list[Session] = field(default_factory=list)
    counted: int = 0
    digest: bytes = b""


def survey(reader: Reader, columns: Mapping[str, frozenset[str]]) -> Survey:
    """Read all tables that the file has; `columns` names the columns of each. Raises ValueError for absurd numbers."""
    found = Survey()
    content = blake2b(digest_size=16)
    for table in tables.ALL:
        if table.name not in columns:
            continue
        # In these portions: with others, an import would not be recognised.
        content.update(table.name.encode())
        for chunk in reader.rows(table.statement(columns[table.name]), CHUNK_ROWS if table is tables.EVENTS else 250):
            content.update(repr(chunk).encode())
            _count(found, table, chunk)
            _refuse_absurd(found)
    found.digest = content.digest()
    return found


def _count(found: Survey, table: tables.Table, chunk: list[Row]) -> None:
    faults = Counter(row[0] for row in chunk)
    good = faults.pop(0, 0)
    if faults:
        named = Counter({table.fields[fault - 1].name: count for fault, count in faults.items()})
        found.skipped[table.name] = found.skipped.get(table.name, Counter()) + named
        chunk = [row for row in chunk if not row[0]]
    if not good:
        return
    found.rows[table.name] += good
    values = dict(zip(table.names, list(zip(*chunk, strict=True))[2:], strict=True))
    found.lost[table.name] += sum(row[1] for row in chunk)
    if "node" in values:
        found.nodes.update(values["node"])
    _note(found, table, values)


def _note(found: Survey, table: tables.Table, values: dict[str, tuple[Any, ...]]) -> None:
    if table is tables.EVENTS:
        found.nameless += values["node"].count("")
        found.ranks.update(values["rank"])
        found.world_sizes.update(values["world_size"])
    elif table is tables.SESSIONS:
        starts, stops = values["started_at"], values["stopped_at"]
        sessions = zip(values["node"], starts, stops, strict=True)
        found.sessions += [Session(node, start, stop or 0) for node, start, stop in sessions]
    elif table is tables.AGGREGATES:
        found.counted += sum(values["count"])


def _refuse_absurd(found: Survey) -> None:
    for count, most, what in (
        (len(found.nodes), _MOST_NODES, "nodes"),
        (len(found.sessions), _MOST_SESSIONS, "sessions"),
        (len(found.ranks), _MOST_RANKS, "ranks"),
        (found.rows[tables.PROCESS_NAMES.name], _MOST_PROCESS_NAMES, "process names"),
    ):
        if count > most:
            raise ValueError(f"names {count} {what}; at most {most} are read")


def context_rows(found: Survey) -> dict[str, int]:
    """How many rows of each kind there are, by the view that shows them."""
    return {source.kind.view: found.rows[source.table.name] for source in SOURCES if found.rows[source.table.name]}
