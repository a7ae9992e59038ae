"""Calls become batches of events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.batches import batch
from ingero_mcp.importers.imported import Names
from ingero_mcp.importers.inspector.channels import NAMELESS, comm_id
from ingero_mcp.importers.inspector.record import Call
from ingero_mcp.importers.inspector.survey import Survey

TIME_BASE: Final = "ingero.time_base"
COMM_HASH: Final = "nccl.comm_hash"
TIMED_BY: Final = "nccl.timing_source"
HOST: Final = "host.name"

_BATCH_ROWS: Final = 1 << 14  # stores recognise batches by number: with another size they would not
_EVENTS: Final = {"All2All": "ncclAlltoAll", NAMELESS: "ncclUnknown"}


class EventBatches:
    """Makes batches of the calls of one log, which was surveyed."""

    def __init__(self, found: Survey, names: Names, job_id: str, first_seq: int) -> None:
        self._found = found
        self._names = names
        self._job_id = job_id
        self._next_seq = first_seq
        self._traces: dict[str, str] = {}

    def batches(self, calls: Iterable[Call]) -> Iterator[pa.RecordBatch]:
        """The events in the order of the log."""
        calls = iter(calls)
        while part := list(islice(calls, _BATCH_ROWS)):
            yield self._batch(part)

    def _batch(self, calls: Sequence[Call]) -> pa.RecordBatch:
        found, first = self._found, self._next_seq
        self._next_seq += len(calls)
        channels = [comm_id(call) for call in calls]
        numbers = [found.channels.seq(call) for call in calls]
        ranks = [found.ranks.rank_of(call.context) for call in calls]
        metrics = [_EVENTS.get(call.function, f"nccl{call.function}") for call in calls]
        columns: dict[str, Any] = {
            "cluster_id": self._names.cluster,
            "node_id": [self._node(call) for call in calls],
            "job_id": self._job_id,
            "event_seq": range(first, first + len(calls)),
            "timestamp_ns": [call.start_ns for call in calls],
            "duration_ns": [call.duration_ns for call in calls],
            "source": [semconv.source_of(metric) for metric in metrics],
            "metric_name": metrics,
            "rank": ranks,
            "nranks": [call.context.communicator.nranks for call in calls],
            "world_size": [None if rank is None else found.ranks.world_size for rank in ranks],
            "pid": [call.context.pid for call in calls],
            "comm_id": channels,
            "coll_seq": numbers,
            "bytes": [call.bytes for call in calls],
            "timing_source": [semconv.KERNEL_GPU if call.timed_on_gpu else semconv.HOST_API for call in calls],
            "trace_id": [self._trace_id(*facts) for facts in zip(calls, channels, numbers, strict=True)],
            "attrs_json": [self._attributes(call, metric) for call, metric in zip(calls, metrics, strict=True)],
        }
        return batch(columns, len(calls))

    def _node(self, call: Call) -> str:
        # A colon would divide node and number in an event's id at the wrong place.
        return call.context.host if call.context.host and ":" not in call.context.host else self._names.node

    def _trace_id(self, call: Call, channel: str, number: int | None) -> str | None:
        """32 digits, equal on all ranks of an operation: 16 for the channel and 16 for the number in it."""
        if number is None:
            return None
        if call.peer is not None:
            ends = (call.context.communicator.rank, call.peer)
            source, destination = ends if call.function == "Send" else ends[::-1]
            channel = f"{channel} {source} {destination}"
        prefix = self._traces.get(channel)
        if prefix is None:
            text = f"{self._job_id} {channel}"
            prefix = self._traces[channel] = blake2b(text.encode(), digest_size=8).hexdigest()
        return f"{prefix}{number:016d}"

    def _attributes(self, call: Call, metric: str) -> str:
        communicator = call.context.communicator
        attrs: dict[str, str | int | float] = {
            semconv.NCCL_OP_TYPE: metric,
            semconv.NCCL_RANK: communicator.rank,
            semconv.SEQ_ORIGIN: "init",
            COMM_HASH: format(communicator.hash, "#x"),
        }
        if call.peer is not None:
            attrs[semconv.NCCL_PEER_RANK] = call.peer
        if communicator.name:
            attrs[semconv.COMM_NAME] = communicator.name
        if call.time_base != "kernel":
            attrs[TIME_BASE] = call.time_base
        if call.timing and not call.timed_on_gpu:
            attrs[TIMED_BY] = call.timing
        if self._node(call) != call.context.host and call.context.host:
            attrs[HOST] = call.context.host
        return json.dumps(attrs | dict(call.details), separators=(",", ":"))
