"""Merging: several databases, and files that were read, become one new database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa

from ingero_mcp.clocks import NodeClock
from ingero_mcp.importers.imported import Import, batch_key
from ingero_mcp.limits import StoreLimits
from ingero_mcp.store.merging import chains, context, events, stacks
from ingero_mcp.store.merging.scratch import EVENTS, Scratch, opened
from ingero_mcp.store.migrations import count_again
from ingero_mcp.store.schema import BATCHES, NODE_CLOCKS, ROWS


@dataclass(frozen=True, slots=True)
class Part:
    """One source: a database of ours at `path`, or what an importer `read` from the file there."""

    path: Path
    read: Import | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """The events of each source, in order; those of the result, and how many of them were `renumbered`.

    `clocks` are the readings of clocks that the sources have. They are not in the result: what it shows is better.
    """

    events_read: tuple[int, ...]
    events: int
    renumbered: int
    clocks: tuple[NodeClock, ...]


def merge(
    parts: Sequence[Part], new: Path, *, limits: StoreLimits | None = None, tell: Callable[[str], None] | None = None
) -> Merged:
    """Write the merge of `parts` to `new`, which must not exist; what is needed besides lies in its folder.

    `tell` hears what is being done. Raises ImportFileError, StoreError or SchemaError for a source that cannot be
    read; what DuckDB says of writing, `store.new_file` translates.
    """
    tell = tell or (lambda _: None)
    databases = [part for part in parts if part.read is None]
    imports = [part for part in parts if part.read is not None]
    with opened(new, [part.path for part in databases], limits or StoreLimits()) as scratch:
        keys: list[bytes] = []
        for source, part in enumerate(imports, len(databases)):
            tell(f"reading {part.path}")
            keys += _stage(scratch, source, part)
        tell("telling the events apart")
        found = chains.read(scratch)
        stacks.read(scratch)
        events.keep(scratch)
        tell("writing")
        events.write(scratch)
        context.write(scratch)
        chains.write(scratch, found)
        _remember(scratch, keys)
        count_again(scratch.connection)
        return Merged(
            events_read=_counts(scratch, parts, [*databases, *imports]),
            events=scratch.one(f"SELECT count(*) FROM {ROWS}"),
            renumbered=events.renumbered(scratch),
            clocks=_clocks(scratch),
        )


def _stage(scratch: Scratch, source: int, part: Part) -> list[bytes]:
    """Take in what was read; returns the keys by which a later import of the same file is recognised."""
    assert part.read is not None
    keys = []
    for is_context, batches in ((False, part.read.batches), (True, part.read.context)):
        for number, batch in enumerate(batches):
            scratch.stage(source, batch, context=is_context)
            keys.append(batch_key(part.read.digest, number, context=is_context))
    return keys


def _remember(scratch: Scratch, keys: Sequence[bytes]) -> None:
    """Batches that a source knows already are known to the result; so are the files that were read now."""
    tables = filter(None, (scratch.table_of(number, BATCHES) for number in range(len(scratch.databases))))
    scratch.connection.register("incoming", pa.table({"key": pa.array(keys, pa.binary())}))
    known = ["SELECT key, NULL AS received_ns FROM incoming"]
    known += [f"SELECT key, received_ns FROM {table}" for table in tables]
    scratch.connection.execute(
        f"INSERT INTO {BATCHES} SELECT key, CASE WHEN count(received_ns) = count(*) THEN max(received_ns) END "
        f"FROM ({' UNION ALL '.join(known)}) GROUP BY key"
    )
    scratch.connection.unregister("incoming")


def _clocks(scratch: Scratch) -> tuple[NodeClock, ...]:
    """The readings of clocks that the sources have; of several with one place, time and method the surest."""
    tables = filter(None, (scratch.table_of(number, NODE_CLOCKS) for number in range(len(scratch.databases))))
    names = ", ".join(field.name for field in fields(NodeClock))
    readings = " UNION ALL ".join(f"SELECT {names} FROM {table}" for table in tables)
    if not readings:
        return ()
    rows = scratch.connection.execute(
        f"SELECT {names} FROM ({readings}) QUALIFY row_number() OVER ("
        "PARTITION BY cluster_id, node_id, rank, at_ns, method ORDER BY bound_ns NULLS LAST, offset_ns, reference) = 1 "
        "ORDER BY ALL"
    ).fetchall()
    return tuple(NodeClock(*row) for row in rows)


def _counts(scratch: Scratch, parts: Sequence[Part], ordered: Sequence[Part]) -> tuple[int, ...]:
    """The events of each part; `ordered` is the order in which they were opened."""
    rows = scratch.connection.execute(f"SELECT part, count(*) FROM {EVENTS} GROUP BY part").fetchall()
    found: dict[int, int] = dict(rows)
    counts = {id(part): found.get(source, 0) for source, part in enumerate(ordered)}
    return tuple(counts[id(part)] for part in parts)
