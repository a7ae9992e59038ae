"""An export that has begun: what it will hold is known, its bytes come as they are read."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ingero_mcp import __version__
from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.events import COLUMNS, COMPUTED
from ingero_mcp.export.csv_lines import csv_lines
from ingero_mcp.export.happenings import Clocks
from ingero_mcp.export.parquet import parquet_bytes
from ingero_mcp.export.perfetto import trace
from ingero_mcp.exported.asked import Asked
from ingero_mcp.exported.pieces import Relation, extent, tables
from ingero_mcp.exported.scope import Scope, scope_of
from ingero_mcp.exported.timeline import timeline
from ingero_mcp.sqlguard import check
from ingero_mcp.tools.call import Call

MOST_RESULT_BYTES: Final = 128 << 20
"""Of the rows of a statement, which has no order of time by which it could be read in pieces."""

SCHEMA: Final = pa.schema([*ARROW_SCHEMA, *((column.name, pa.string()) for column in COMPUTED)])
"""The columns of an export of events: all that are stored, then node and id."""

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Begun:
    """`rows` are the events (for a statement: its rows); `pieces` the bytes of the file, to be taken once;
    closing it ends the export."""

    rows: int
    pieces: Generator[bytes, None, None]


def begin(call: Call, asked: Asked) -> Begun:
    """Look what is asked for. What is wrong with it is raised here, before the first byte."""
    if asked.format == "perfetto":
        return _timeline(call, asked)
    if asked.sql is not None:
        rows = call.table(check(asked.sql), MOST_RESULT_BYTES)
        return Begun(rows.num_rows, _written(asked, rows.schema, [rows]))
    relation = events_of(scope_of(call, asked))
    within = extent(call, relation)
    read = (one.select(SCHEMA.names).cast(SCHEMA) for one in tables(call, relation, within))
    return Begun(within.rows, _written(asked, SCHEMA, read))


def events_of(scope: Scope) -> Relation:
    """The events of a scope with all of their columns, in the order of time."""
    return Relation(
        source="events",
        columns=", ".join(column.name for column in COLUMNS),
        time="timestamp_ns",
        then="cluster_id, node_id, event_seq",
        texts=("attrs_json", "metric_name", "process"),
        identity=("node_id", "event_seq", "metric_name"),
        where=scope.events(),
    )


def _timeline(call: Call, asked: Asked) -> Begun:
    found = timeline(call, scope_of(call, asked))
    about = {"producer": f"ingero {__version__}", "events": found.extent.rows, "clocks": _said(found.clocks)}
    lines = trace(found.items(), found.places, found.clocks, about)
    return Begun(found.extent.rows, _gathered(lines))


def _written(asked: Asked, schema: pa.Schema, read: Iterable[pa.Table]) -> Generator[bytes, None, None]:
    if asked.format == "parquet":
        return parquet_bytes(schema, read)
    return csv_lines(schema, read, for_spreadsheets=asked.spreadsheets)


def _gathered(lines: Iterable[str]) -> Generator[bytes, None, None]:
    """The lines in pieces worth a write."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _PIECE_BYTES:
            yield "".join(held).encode()
            held, size = [], 0
    yield "".join(held).encode()


def _said(clocks: Clocks) -> list[dict[str, object]]:
    """By how much the times of each clock were corrected."""
    return [
        {"cluster_id": cluster, "node_id": node, "rank": rank, "offset_ns": clock.offset_ns, "bound_ns": clock.bound_ns}
        for (cluster, node, rank), clock in clocks.known.items()
    ]
