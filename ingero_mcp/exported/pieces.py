"""Rows of a relation in the order of time, in pieces of bounded size.

One sort of everything would need memory for everything. So the time is cut, by a few counts, into ranges that hold few
enough rows, and each is a query of its own: bounded in rows and bytes, with the limits of any query, and no reader is
kept open while whoever wants the rows is slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ingero_mcp.tools.call import Call

MOST_ROWS: Final = 16_384
MOST_TEXT_BYTES: Final = 16 << 20
_MOST_TABLE_BYTES: Final = 128 << 20
_BUCKETS: Final = 256
_WIDE: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows of a relation (`source`, SQL) that meet `where`.

    `columns` is the select list; `time` the expression in nanoseconds that orders the rows, `then` what orders those of
    one time; `texts` are the columns that may be long; `identity` tells rows of one time apart. Where `time` is not a
    column, a filter on it reads everything: `raw` is the column, which may differ from it by `behind_ns` to `ahead_ns`.
    """

    source: str
    columns: str
    time: str
    then: str
    texts: tuple[str, ...]
    identity: tuple[str, ...]
    where: str = "true"
    raw: str = ""
    behind_ns: int = 0
    ahead_ns: int = 0

    def between(self, start_ns: int, end_ns: int) -> str:
        """The condition for `start_ns <= time < end_ns`."""
        terms = [self.where, f"{self.time} >= {start_ns}", f"{self.time} < {end_ns}"]
        if self.raw:
            terms += [f"{self.raw} >= {start_ns - self.behind_ns}", f"{self.raw} < {end_ns + self.ahead_ns}"]
        return " AND ".join(terms)

    @property
    def weight(self) -> str:
        """The bytes of the long texts of a group of rows."""
        sizes = " + ".join(f"coalesce(strlen({name}), 0)" for name in self.texts)
        return f"CAST(sum({sizes or '0'}) AS BIGINT)"


@dataclass(frozen=True, slots=True)
class Extent:
    """From when to when there are rows (half-open), how many, and the bytes of their texts."""

    start_ns: int
    end_ns: int
    rows: int
    text_bytes: int

    @property
    def parts(self) -> int:
        """How many pieces it makes at least."""
        return max(1, -(-self.rows // MOST_ROWS), -(-self.text_bytes // MOST_TEXT_BYTES))


def extent(call: Call, relation: Relation) -> Extent:
    """How much there is; rows without a time are left out."""
    time = relation.time
    sql = f"SELECT count({time}), min({time}), max({time}), {relation.weight} FROM {relation.source}"
    rows, first, last, text_bytes = call.read(f"{sql} WHERE {relation.where}").rows[0]
    if not isinstance(first, int) or not isinstance(last, int):
        return Extent(0, 0, 0, 0)
    return Extent(first, last + 1, int(str(rows)), int(str(text_bytes or 0)))


def tables(call: Call, relation: Relation, within: Extent) -> Iterator[pa.Table]:
    """The rows, piece by piece."""
    for condition in conditions(call, relation, within):
        yield table(call, relation, condition)


def table(call: Call, relation: Relation, condition: str) -> pa.Table:
    """The rows of one piece; QueryError if one of them alone is larger than may be held."""
    order = ", ".join(filter(None, (relation.time, relation.then)))
    sql = f"SELECT {relation.columns} FROM {relation.source} WHERE {condition} ORDER BY {order}"
    return call.table(sql, _MOST_TABLE_BYTES)


def conditions(call: Call, relation: Relation, within: Extent) -> Iterator[str]:
    """The pieces as SQL conditions, in the order of time."""
    if not within.rows:
        return
    span_ns = within.end_ns - within.start_ns
    if within.parts == 1:
        yield relation.between(within.start_ns, within.end_ns)
    elif span_ns == 1:
        # All at one nanosecond (a coarse clock): there is no order among them that a cut could break.
        key = f"hash({', '.join(relation.identity)})"
        for part in range(within.parts):
            yield f"{relation.between(within.start_ns, within.end_ns)} AND {key} % {within.parts} = {part}"
    else:
        for part_of_it in _grouped(_buckets(call, relation, within)):
            yield from conditions(call, relation, part_of_it)


def _buckets(call: Call, relation: Relation, within: Extent) -> list[Extent]:
    """The same rows by equal lengths of time; those without rows are left out."""
    span_ns = within.end_ns - within.start_ns
    width_ns = -(-span_ns // _BUCKETS)
    time = relation.time if span_ns < _WIDE else f"CAST({relation.time} AS HUGEINT)"
    bucket = f"CAST(({time} - {within.start_ns}) // {width_ns} AS BIGINT)"
    rows = call.read(
        f"SELECT {bucket} AS bucket, count(*), {relation.weight} FROM {relation.source} "
        f"WHERE {relation.between(within.start_ns, within.end_ns)} GROUP BY bucket ORDER BY bucket",
        _BUCKETS + 1,
    ).rows
    found = []
    for number, count, text_bytes in rows:
        start_ns = within.start_ns + int(str(number)) * width_ns
        end_ns = min(start_ns + width_ns, within.end_ns)
        found.append(Extent(start_ns, end_ns, int(str(count)), int(str(text_bytes or 0))))
    return found


def _grouped(buckets: list[Extent]) -> Iterator[Extent]:
    """Neighbours together while they make one piece."""
    gathered: Extent | None = None
    for bucket in buckets:
        both = gathered and Extent(
            gathered.start_ns, bucket.end_ns, gathered.rows + bucket.rows, gathered.text_bytes + bucket.text_bytes
        )
        if gathered and both and both.parts > 1:
            yield gathered
            both = None
        gathered = both or bucket
    if gathered:
        yield gathered
