"""Epochs: communicators that are begun anew, noticed while events are written.

A rank counts the collectives of a communicator. Where the count falls back while time goes on, the communicator was
begun anew (the job was started again, or what counted was), and an epoch ends. The table holds where, for each
count; most counts never fall back, and have no row.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

import duckdb
import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.store.grouped import KEY_COLUMNS, Grouped, Key, group
from ingero_mcp.store.schema import EPOCHS
from ingero_mcp.store.stretches import REMEMBERED, Epoch, Stretch, epochs, join, place
from ingero_mcp.views import CALLS

MOST_COUNTS: Final = 100_000
"""Counts that are kept in memory; those of others are read again when they go on."""

_ATTACHED: Final = re.compile(rf'"{re.escape(semconv.SEQ_ORIGIN)}":\s*"attach"')
_EARLIEST_NS, _LATEST_NS = -(2**63), 2**63 - 1
_FIELDS: Final[list[tuple[str, pa.DataType]]] = [
    *((name, ARROW_SCHEMA.field(name).type) for name in KEY_COLUMNS),
    ("from_ns", pa.int64()),
    ("to_ns", pa.int64()),
    ("epoch", pa.int32()),
    ("attached", pa.bool_()),
]
_SCHEMA: Final = pa.schema(_FIELDS)


class Epochs:
    """Belongs to the thread that writes. `note` every batch before it is inserted, in the same transaction.

    At most `most` counts are kept in memory. `counts` are those known from the beginning; None: read the table.
    """

    def __init__(self, most: int = MOST_COUNTS, counts: dict[Key, list[Stretch]] | None = None) -> None:
        self._most = most
        self._counts = counts
        self._complete = True

    def note(self, cursor: duckdb.DuckDBPyConnection, batch: pa.Table) -> None:
        """Find new epochs in a batch of events and write them down."""
        calls = group(batch)
        if calls is None:
            return
        counts = self._known(cursor, calls)
        changed: dict[Key, list[Epoch]] = {}
        for index, key in enumerate(calls.keys):
            stretches = counts.setdefault(key, [])
            if _goes_on(stretches, calls, index):
                continue
            before = epochs(stretches)
            for stretch, row in _put(stretches, calls, index):
                stretch.attached = _is_attached(batch.column("attrs_json")[row].as_py())
            join(stretches)
            after = epochs(stretches)
            if after != before and (len(after) > 1 or after[0].attached):
                changed[key] = after
        if changed:
            _write(cursor, changed)

    def forget(self) -> None:
        """The transaction failed: what was noted is not in the table, so read it again."""
        self._counts = None

    def _known(self, cursor: duckdb.DuckDBPyConnection, calls: Grouped) -> dict[Key, list[Stretch]]:
        if self._counts is None or len(self._counts) > self._most:
            self._counts = _read(cursor, self._most // 2)
            self._complete = len(self._counts) < self._most // 2
        if not self._complete:
            new = {key[2] for key in calls.keys if key not in self._counts}
            if new:
                self._counts = _read(cursor, self._most, new) | self._counts
        return self._counts


def _goes_on(stretches: list[Stretch], calls: Grouped, index: int) -> bool:
    """Take in a whole group at once: nearly always it just goes on from what was seen, or was seen before."""
    if not (stretches and calls.rising[index]):
        return False
    start, end = calls.starts[index], calls.starts[index + 1]
    first = int(calls.times_ns[start]), int(calls.seqs[start])
    last = int(calls.times_ns[end - 1]), int(calls.seqs[end - 1])
    if stretches[-1].is_followed_by(*first):
        stretches[-1].advance(*last, calls.seen[index])
        return True
    within = next((stretch for stretch in stretches if stretch.covers(first, last)), None)
    if within is not None:
        within.mark(last[1], calls.seen[index])
    return within is not None


def _put(stretches: list[Stretch], calls: Grouped, index: int) -> list[tuple[Stretch, int]]:
    """Put the calls of a group into its stretches one by one; those that begin here, with the row that begins each."""
    start, end = calls.starts[index], calls.starts[index + 1]
    begun = []
    for time_ns, seq, row in zip(
        calls.times_ns[start:end].tolist(), calls.seqs[start:end].tolist(), calls.rows[start:end].tolist(), strict=True
    ):
        stretch = place(stretches, time_ns, seq)
        if stretch is not None:
            begun.append((stretch, row))
    return begun


def _is_attached(attributes: str | None) -> bool:
    return attributes is not None and _ATTACHED.search(attributes) is not None


def _same(left: str, right: str) -> str:
    return " AND ".join(f"{left}.{name} IS NOT DISTINCT FROM {right}.{name}" for name in KEY_COLUMNS)


def _read(
    cursor: duckdb.DuckDBPyConnection, most: int, communicators: Collection[str] | None = None
) -> dict[Key, list[Stretch]]:
    """What the table of events tells of the counts that went on last: a stretch for each epoch."""
    keys = ", ".join(KEY_COLUMNS)
    only = "" if communicators is None else "AND comm_id IN (SELECT unnest($1))"
    rows = cursor.execute(
        f"""
        WITH stretches AS (
            SELECT {keys}, epoch, any_value(attached) AS attached, min(timestamp_ns) AS first_ns,
                   min(coll_seq) AS first_seq, max(coll_seq, {REMEMBERED}) AS seqs,
                   max_by(timestamp_ns, coll_seq, {REMEMBERED}) AS times_ns
            FROM {CALLS} WHERE rank IS NOT NULL AND timestamp_ns IS NOT NULL {only} GROUP BY {keys}, epoch
        ),
        newest AS (SELECT {keys} FROM stretches GROUP BY {keys} ORDER BY max(list_max(times_ns)) DESC LIMIT {most})
        SELECT {", ".join(f"stretches.{name}" for name in KEY_COLUMNS)}, first_ns, first_seq, list_max(times_ns), seqs,
               attached
        FROM stretches JOIN newest ON {_same("stretches", "newest")}
        ORDER BY epoch
        """,
        [] if communicators is None else [list(communicators)],
    ).fetchall()
    counts: dict[Key, list[Stretch]] = {}
    for cluster, job, comm, rank, timing, first_ns, first_seq, last_ns, seqs, attached in rows:
        seen = sum({1 << seqs[0] - seq for seq in seqs if seqs[0] - seq < REMEMBERED})
        stretch = Stretch(first_ns, first_seq, last_ns, seqs[0], seen, attached)
        counts.setdefault((cluster, job, comm, rank, timing), []).append(stretch)
    return counts


def _write(cursor: duckdb.DuckDBPyConnection, changed: dict[Key, list[Epoch]]) -> None:
    """Replace the rows of those counts."""
    keys = pa.Table.from_pylist([dict(zip(KEY_COLUMNS, key, strict=True)) for key in changed], _SCHEMA)
    cursor.register("changed", keys)
    cursor.execute(f"DELETE FROM {EPOCHS} AS old USING changed WHERE {_same('old', 'changed')}")
    cursor.unregister("changed")
    rows = [row for key, found in changed.items() for row in _rows(key, found)]
    cursor.register("begun", pa.Table.from_pylist(rows, _SCHEMA))
    cursor.execute(f"INSERT INTO {EPOCHS} SELECT * FROM begun")
    cursor.unregister("begun")


def _rows(key: Key, found: list[Epoch]) -> list[dict[str, Any]]:
    begins = [_EARLIEST_NS, *(epoch.from_ns for epoch in found[1:])]
    ends = [*begins[1:], _LATEST_NS]
    return [
        dict(zip(KEY_COLUMNS, key, strict=True))
        | {"from_ns": begin, "to_ns": end, "epoch": number, "attached": epoch.attached}
        for number, (epoch, begin, end) in enumerate(zip(found, begins, ends, strict=True))
        if number or epoch.attached
    ]
