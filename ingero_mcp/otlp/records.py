"""Columns under construction: one row per OTLP record, no Python object per event.

`Records` is filled by the decoders of spans, metric points and log records, and becomes one Arrow batch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.errors import WireError
from ingero_mcp.events import STORED, AttributeValue
from ingero_mcp.otlp.attributes import NO_COLUMN, Attribute, AttributeCache, json_member, plain_attributes

SLOT: Final[dict[str, int]] = {column.name: slot for slot, column in enumerate(STORED)}
OLDEST_PLAUSIBLE_NS: Final = 1_577_836_800_000_000_000  # 2020-01-01
DAY_NS: Final = 86_400_000_000_000
MOST_RECORDS: Final = 250_000
"""Of one request. An empty span takes two bytes on the wire and a thousand times as many here."""
_CHAIN = SLOT["causal_chain_id"]
_RANK, _WORLD_SIZE, _NRANKS = SLOT["rank"], SLOT["world_size"], SLOT["nranks"]
_TIMESTAMP, _ATTRS = SLOT["timestamp_ns"], SLOT["attrs_json"]
# A span may carry host.name as a plain attribute of its own; who sent it is for the resource to say.
_OF_THE_RESOURCE: Final = (SLOT["cluster_id"], SLOT["node_id"])


@dataclass(frozen=True, slots=True)
class Origin:
    """What all records of one resource and scope share.

    `values` are (slot, value) pairs of columns; `json_members` what has no column. `attributes` are the resource's
    own, by key: a record that has one of these keys too hides it.
    """

    values: tuple[tuple[int, Any], ...]
    json_members: tuple[str, ...]
    attributes: dict[str, Attribute]
    node_rank: int | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a request came: when (Unix ns), and the cluster of those who do not name theirs."""

    received_ns: int
    cluster_id: str = semconv.UNKNOWN


class Records:
    """`rows` records as columns. `repaired_times` counts the rows that got the receive time."""

    def __init__(self, rows: int, arrival: Arrival, cache: AttributeCache) -> None:
        if rows > MOST_RECORDS:
            raise WireError(f"the request holds {rows} records, the limit is {MOST_RECORDS}; send smaller batches")
        self.columns: list[list[Any]] = [[None] * rows for _ in STORED]
        self.repaired_times = 0
        self.rejected: list[int] = []
        self.reason = ""
        self._row = 0
        self._arrival = arrival
        self._cache = cache

    def each(self, items: Iterable[Any], put: Callable[[int, Any], None]) -> None:
        """Call `put` with the next free row and each item; an item that cannot be read costs only its own row."""
        for item in items:
            try:
                put(self._row, item)
            except WireError as error:
                self.rejected.append(self._row)
                self.reason = self.reason or str(error)
            self._row += 1

    def origin(self, described: Any, scoped: Any) -> Origin:
        """The shared part of the records of one resource and one instrumentation scope.

        `described` is a ResourceSpans, ResourceMetrics or ResourceLogs, `scoped` one of the scopes in it.
        """
        members: list[str] = []
        found, contested = self._look_up(described.resource.attributes, members)
        values = {a.slot: a.fitted for a in found.values() if a.slot != NO_COLUMN and a.place == 0}
        values |= _best_of(contested, taken=values)
        values.setdefault(SLOT["cluster_id"], self._arrival.cluster_id)
        values.setdefault(SLOT["node_id"], semconv.UNKNOWN)
        members.extend(attribute.json_member for attribute in found.values() if attribute.json_member)
        members.extend(self._scope_members(scoped))
        members.extend(_resource_members(described))
        return Origin(tuple(values.items()), tuple(members), found, _as_rank(found.get(semconv.NODE_RANK)))

    def fill(self, row: int, origin: Origin, attributes: Iterable[bytes], members: list[str]) -> dict[str, Attribute]:
        """Put the shared values and the record's own attributes into `row`; returns the attributes by key.

        `members` are further JSON members of the row. Of two attributes with one key the last wins, the others are
        kept under `otlp.duplicate_keys`; what hides an attribute of the resource moves that one to
        `otlp.resource.attribute.<key>`.
        """
        columns = self.columns
        for slot, value in origin.values:
            columns[slot][row] = value
        found, contested = self._look_up(attributes, members)
        for attribute in found.values():
            _, slot, place, fitted, member, _ = attribute
            if slot != NO_COLUMN and place == 0:
                columns[slot][row] = fitted
            if member:
                members.append(member)
        if contested:
            settled = self._settle_contested(row, contested)
            if _CHAIN in settled and semconv.CAUSAL_CHAIN_ID not in found.keys() | origin.attributes.keys():
                members.append(json_member(semconv.CAUSAL_CHAIN_ID, settled[_CHAIN]))
        members.extend(_shared_members(origin, found))
        columns[_ATTRS][row] = "{" + ",".join(members) + "}"
        if columns[_RANK][row] is None:
            self._settle_rank(row, origin, found)
        return found

    def put_time(self, row: int, time_ns: int, members: list[str]) -> bool:
        """Set the row's timestamp; an implausible one is replaced by the receive time and kept in JSON.

        Implausible: before 2020, or more than a day ahead (the Ingero agent sends time since boot). False if replaced.
        """
        if OLDEST_PLAUSIBLE_NS <= time_ns <= self._arrival.received_ns + DAY_NS:
            self.columns[_TIMESTAMP][row] = time_ns
            return True
        self.columns[_TIMESTAMP][row] = self._arrival.received_ns
        members.append(json_member("otlp.time_raw_ns", time_ns))
        self.repaired_times += 1
        return False

    def batch(self) -> pa.RecordBatch:
        """The rows as one Arrow batch in the schema of `events`."""
        arrays = [pa.array(values, type=field.type) for values, field in zip(self.columns, ARROW_SCHEMA, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
        if not self.rejected:
            return batch
        unusable = set(self.rejected)
        return batch.take(pa.array([row for row in range(batch.num_rows) if row not in unusable], type=pa.int64()))

    def _look_up(self, attributes: Iterable[bytes], members: list[str]) -> tuple[dict[str, Attribute], list[Attribute]]:
        """The attributes by key, and those that only fill their column if no better key does."""
        get, learn = self._cache.get, self._cache.learn
        found: dict[str, Attribute] = {}
        contested = False
        losers: dict[str, AttributeValue] = {}
        for raw in attributes:
            attribute = get(raw) or learn(raw)
            key = attribute[0]
            if key in found:
                earlier = losers.setdefault(key, [])
                assert isinstance(earlier, list)
                earlier.append(found[key].value)
            found[key] = attribute
            contested = contested or attribute[2] > 0
        if losers:
            members.append(json_member("otlp.duplicate_keys", losers))
        return found, [attribute for attribute in found.values() if attribute.place] if contested else []

    def _scope_members(self, scoped: Any) -> list[str]:
        scope = scoped.scope
        named = (
            ("otlp.scope.schema_url", scoped.schema_url),
            ("otlp.scope.name", scope.name),
            ("otlp.scope.version", scope.version),
            ("otlp.scope.dropped_attributes_count", scope.dropped_attributes_count),
        )
        members = [json_member(key, text) for key, text in named if text]
        if scope.attributes:
            members.append(json_member("otlp.scope.attributes", plain_attributes(scope.attributes)))
        return members

    def _settle_contested(self, row: int, contested: list[Attribute]) -> dict[int, Any]:
        taken = dict.fromkeys(_OF_THE_RESOURCE, True)
        for attribute in contested:
            if self.columns[attribute.slot][row] is not None:
                taken[attribute.slot] = True
        settled = _best_of(contested, taken)
        for slot, value in settled.items():
            self.columns[slot][row] = value
        return settled

    def _settle_rank(self, row: int, origin: Origin, found: dict[str, Attribute]) -> None:
        # Global rank: ingero.rank; else the rank in a communicator as large as the job; else the node's.
        comm_rank = _as_rank(found.get(semconv.NCCL_RANK))
        nranks = self.columns[_NRANKS][row]
        is_world = nranks is not None and nranks == self.columns[_WORLD_SIZE][row]
        self.columns[_RANK][row] = comm_rank if comm_rank is not None and is_world else origin.node_rank


def _resource_members(described: Any) -> list[str]:
    resource = described.resource
    named = (
        ("otlp.resource.schema_url", described.schema_url),
        ("otlp.resource.dropped_attributes_count", resource.dropped_attributes_count),
    )
    members = [json_member(key, value) for key, value in named if value]
    if resource.entity_refs:
        entities: list[AttributeValue] = [
            {
                "type": entity.type,
                "id_keys": list(entity.id_keys),
                "description_keys": list(entity.description_keys),
                "schema_url": entity.schema_url,
            }
            for entity in resource.entity_refs
        ]
        members.append(json_member("otlp.resource.entity_refs", entities))
    return members


def _best_of(contested: Iterable[Attribute], taken: Container[int]) -> dict[int, Any]:
    best: dict[int, Attribute] = {}
    for attribute in contested:
        if attribute.slot in taken:
            continue
        if attribute.slot not in best or attribute.place < best[attribute.slot].place:
            best[attribute.slot] = attribute
    return {slot: attribute.fitted for slot, attribute in best.items()}


def _as_rank(attribute: Attribute | None) -> int | None:
    """The value where it can be a rank at all: a whole number that the column holds."""
    value = attribute.value if attribute else None
    is_rank = isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
    return int(value) if is_rank and isinstance(value, int) else None


def _shared_members(origin: Origin, found: dict[str, Attribute]) -> Iterable[str]:
    if origin.attributes.keys().isdisjoint(found):
        return origin.json_members
    hidden = {key: origin.attributes[key] for key in found.keys() & origin.attributes.keys()}
    gone = {attribute.json_member for attribute in hidden.values()}
    kept = [member for member in origin.json_members if member not in gone]
    return [*kept, *(json_member(f"otlp.resource.attribute.{key}", a.value) for key, a in sorted(hidden.items()))]
