"""The last step of reading a dump: its entries, its groups and the dump itself become events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.batches import Values, batch
from ingero_mcp.importers.flight_recorder.dump import MAX_ROWS, Dump
from ingero_mcp.importers.flight_recorder.entries import Entry
from ingero_mcp.importers.flight_recorder.groups import Group

_BATCH_ROWS: Final = 1 << 16  # stores recognise batches by number: with another size they would not
_OUTPUT_COUNT: Final = "nccl.output_count"
_THREAD_NAME: Final = "thread.name"
_OWN: Final = "recorder."
Row = dict[str, Any]
Attributes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """What the rows of a dump have in common, besides what the dump says.

    `time_ns` is for what has no time: points, and entries whose time cannot be true.
    """

    cluster: str
    node: str
    job: str
    time_ns: int


def event_batches(dump: Dump, place: Place) -> Iterator[pa.RecordBatch]:
    """The events of a dump in the order in which they were recorded, numbered from a number taken from the content."""
    first_seq = _first_seq(dump.digest)
    rows = _rows(dump, place)
    for start in range(0, dump.rows, _BATCH_ROWS):
        part = [row for row, _ in zip(rows, range(_BATCH_ROWS), strict=False)]
        columns: dict[str, Values] = {
            "cluster_id": place.cluster,
            "node_id": place.node,
            "job_id": place.job,
            "event_seq": range(first_seq + start, first_seq + start + len(part)),
            "source": "nccl",
            "rank": dump.rank,
            "world_size": dump.world_size,
        }
        columns |= {name: [row.get(name) for row in part] for name in {name for row in part for name in row}}
        yield batch(columns, len(part))


def _rows(dump: Dump, place: Place) -> Iterator[Row]:
    places = {group.name: group.place_of(dump.rank) for group in dump.groups}
    for entry in dump.entries:
        yield _entry(entry, places.get(entry.group.name), place)
    for group in dump.groups:
        yield _communicator(group, places[group.name], place)
    facts = {
        semconv.RECORDER_ENTRIES: dump.listed,
        semconv.RECORDER_OPEN: None if dump.listed is None else dump.open,
        semconv.RECORDER_VERSION: dump.version or None,
    }
    yield {"timestamp_ns": place.time_ns, "metric_name": semconv.RECORDER_DUMP, "attrs_json": _json(facts)}


def _entry(entry: Entry, own_place: int | None, place: Place) -> Row:
    comm_id = entry.group.comm_id
    return {
        "timestamp_ns": place.time_ns if entry.created_ns is None else entry.created_ns,
        "duration_ns": entry.duration_ns,
        "metric_name": entry.operation.event,
        "nranks": len(entry.group.ranks) or None,
        "comm_id": comm_id,
        "coll_seq": entry.seq,
        "bytes": entry.input.bytes,
        "timing_source": semconv.RECORDER,
        "trace_id": None if entry.is_p2p else _trace_id(place.job, comm_id, entry.seq),
        "stack_id": entry.stack_id,
        "attrs_json": _json(_attributes(entry, own_place)),
    }


def _attributes(entry: Entry, own_place: int | None) -> Attributes:
    ranks, peer = entry.group.ranks, entry.operation.peer
    said = dict(entry.said)
    return {
        semconv.NCCL_OP_TYPE: entry.operation.event,
        semconv.OP_TYPE: entry.operation.name,
        semconv.NCCL_RANK: own_place,
        semconv.NCCL_PEER_RANK: peer if peer is not None and peer < len(ranks) else None,
        semconv.NCCL_COUNT: entry.input.count,
        semconv.NCCL_DATATYPE: entry.input.datatype or entry.output.datatype,
        _OUTPUT_COUNT: entry.output.count,
        semconv.NCCL_STATE: entry.state,
        semconv.SEQ_ORIGIN: "init",
        semconv.UNFINISHED: True if entry.is_open else None,
        _THREAD_NAME: said.pop("thread_name", None),
        f"{_OWN}started_ns": entry.started_ns,
        f"{_OWN}gpu_ns": entry.gpu_ns,
        **{f"{_OWN}{key}": value for key, value in said.items()},
    }


def _communicator(group: Group, own_place: int | None, place: Place) -> Row:
    facts = {
        semconv.COMM_RANKS: group.ranks or None,
        semconv.COMM_NAME: group.name,
        semconv.COMM_DESC: group.desc or None,
        semconv.COMM_LAST_ENQUEUED: group.status.enqueued,
        semconv.COMM_LAST_STARTED: group.status.started,
        semconv.COMM_LAST_COMPLETED: group.status.completed,
        semconv.NCCL_RANK: own_place,
    }
    return {
        "timestamp_ns": place.time_ns,
        "metric_name": semconv.COMMUNICATOR,
        "comm_id": group.comm_id,
        "nranks": len(group.ranks) or None,
        "attrs_json": _json(facts),
    }


def _json(attributes: Attributes) -> str:
    known = {key: value for key, value in attributes.items() if value is not None}
    return json.dumps(known, ensure_ascii=False, separators=(",", ":"))


def _trace_id(job: str, comm_id: str | None, seq: int | None) -> str | None:
    # The same on every rank: a collective is one trace.
    if comm_id is None or seq is None:
        return None
    return blake2b(f"{job}/{comm_id}/{seq}".encode(), digest_size=16).hexdigest()


def _first_seq(digest: bytes) -> int:
    # Below 2^51: where producers count, exact in a double, and unlikely to meet the range of another dump.
    return int.from_bytes(digest[:8]) % ((1 << 51) // MAX_ROWS) * MAX_ROWS
