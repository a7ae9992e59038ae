"""Databases written by the Ingero agent: SQLite, schemas 0.8, 0.9 and 0.10.

Rows of the table `events` become events. The rest (stored chains, stacks, sessions, process names, snapshots,
aggregates, annotations, cgroups) becomes context, which has views of its own.

- Time: an agent stamps calls (cuda, driver, graph) when they begin and everything else when it was over. Here
  `timestamp_ns` is always the beginning; the view ingero_events shows the stamps as they were.
- Nodes: from the rows; in files of 0.8, which have no such column, the name that is given, else "unknown". Tables
  that never say their node get the node of the file, or of the run that they fall into.
- Numbers: `event_seq` from ids that read node:number. Other ids are kept as `ingero.id`, and such events are
  numbered from a base that is taken from the content, so that `id` stays unique beside other imports.
- Processes: the name is that of the run in which it was seen, since process ids are used again.

The file is read twice: once to check and count everything, once to hand it out. It is never changed, and what
lies in it is never run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.ingero import context as ingero_context
from ingero_mcp.importers.ingero import events as ingero_events
from ingero_mcp.importers.ingero import tables as tables
from ingero_mcp.importers.ingero.nodes import Nodes, ProcessNames
from ingero_mcp.importers.ingero.schema import missing_tables, read_schema
from ingero_mcp.importers.ingero.sqlite import HEADER_BYTES, Reader, Snapshot, companions, is_sqlite
from ingero_mcp.importers.ingero.survey import Survey, context_rows, survey
from ingero_mcp.importers.text import one_line

KIND: Final = "Ingero database"
ACCEPTS: Final = "a SQLite database written by the Ingero agent, schema 0.8, 0.9 or 0.10"

Columns = dict[str, frozenset[str]]


def mismatch(path: Path) -> str:
    """Why `path` is not a database of an agent, judged by its content; empty if it is one, sound or not."""
    try:
        if not is_sqlite(path):
            return "not a SQLite file"
        if path.stat().st_size < HEADER_BYTES:
            return "cut off within the header of a SQLite file"
        if any(beside.is_file() and beside.stat().st_size for beside in companions(path.resolve())):
            return ""  # its tables may all be in the log beside it, which only reading will tell
        with Snapshot(path).opened() as reader:
            missing = missing_tables(reader)
    except OSError as error:
        return one_line(error)
    except ImportFileError:
        return ""
    return f"a SQLite database of another program, without the tables {' and '.join(missing)}" if missing else ""


def read(path: Path, names: Names | None = None) -> Import:
    """Read and check a whole database; `names` are for what it does not say itself.

    Raises ImportFileError for a file that is damaged, hostile, or of a version that is not known.
    """
    names = names or Names()
    snapshot = Snapshot(path)
    with snapshot.opened() as reader:
        try:
            columns = read_schema(reader, {table.name: table.needed for table in tables.ALL})
            found = survey(reader, columns)
        except ValueError as error:
            raise ImportFileError(f"{snapshot.name} {one_line(error, 400)}; nothing was stored") from error
    nodes = Nodes(found.nodes, names.node, found.sessions)
    return Import(
        kind=KIND,
        digest=found.digest.hex(),
        rows=found.rows[tables.EVENTS.name],
        ranks=len(found.ranks - {None}),
        steps=0,
        world_size=_only(found.world_sizes),
        warnings=tuple(_warnings(found, nodes)),
        batches=_events(snapshot, columns, found, nodes, names),
        context=_context(snapshot, columns, nodes, names),
        context_rows=context_rows(found),
    )


def _events(
    snapshot: Snapshot, columns: Columns, found: Survey, nodes: Nodes, names: Names
) -> Iterator[pa.RecordBatch]:
    with snapshot.opened(paced=True) as reader:
        processes = ProcessNames(nodes, _process_names(reader, columns))
        rows = reader.rows(tables.EVENTS.statement(columns[tables.EVENTS.name]), ingero_events.CHUNK_ROWS)
        yield from ingero_events.EventBatches(nodes, processes, names, found.digest).batches(rows)


def _context(snapshot: Snapshot, columns: Columns, nodes: Nodes, names: Names) -> Iterator[pa.RecordBatch]:
    with snapshot.opened(paced=True) as reader:
        for source in ingero_context.SOURCES:
            if source.table.name in columns:
                rows = reader.rows(source.table.statement(columns[source.table.name]), ingero_context.CHUNK_ROWS)
                yield from ingero_context.batches(source, rows, nodes, names.cluster)


def _process_names(reader: Reader, columns: Columns) -> Iterator[tuple[int, str, int | None]]:
    table = tables.PROCESS_NAMES
    if table.name in columns:
        for chunk in reader.rows(table.statement(columns[table.name])):
            yield from ((pid, name, seen) for fault, _, pid, name, seen in chunk if not fault)


def _warnings(found: Survey, nodes: Nodes) -> Iterator[str]:
    for table, faults in found.skipped.items():
        columns = ", ".join(f"{column} ({count})" for column, count in sorted(faults.items()))
        yield f"{faults.total()} rows of {table} were skipped: no usable {columns}"
    for table, count in found.lost.items():
        if count:
            yield f"{count} values in rows of {table} could not be kept: of the wrong type, too large or too long"
    if found.nameless and nodes.given == semconv.UNKNOWN:
        yield f"{found.nameless} events do not say their node, which is 'unknown' here; name it with --force-node NAME"
    if nodes.only is None:
        yield (
            f"merged from {len(nodes.named)} nodes: what does not say its node is put down to the one whose agent ran "
            "then, else to 'unknown'"
        )
    if found.counted > found.rows[tables.EVENTS.name]:
        yield (
            f"the agent counted {found.counted} events and stored {found.rows[tables.EVENTS.name]}, the slow and the "
            "rare ones first: for counts and averages use the view aggregates"
        )


def _only(sizes: set[int]) -> int | None:
    known = {size for size in sizes if size}
    return known.pop() if len(known) == 1 else None
