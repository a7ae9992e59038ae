"""The event: one row per OTLP data point, span or log record. The only definition of its columns.

The DuckDB table, the Arrow schema, docs/schema.md and the text agents read are all derived from `COLUMNS`;
the OTLP decoder fills columns from `Column.attributes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ColumnType = Literal["VARCHAR", "BIGINT", "INTEGER", "DOUBLE"]
AttributeValue = str | bool | int | float | bytes | list["AttributeValue"] | dict[str, "AttributeValue"] | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `events`.

    `attributes` are the OTLP attribute keys that fill it, first match wins; `doc` is one line for people
    and agents. `computed` holds the SQL of a column that is not stored.
    """

    name: str
    type: ColumnType
    doc: str
    attributes: tuple[str, ...] = ()
    computed: str | None = None


COLUMNS: tuple[Column, ...] = (
    Column("cluster_id", "VARCHAR", "cluster", ("ingero.cluster.id", "k8s.cluster.name")),
    Column("node_id", "VARCHAR", "node (host)", ("ingero.node.id", "host.name", "host.id")),
    Column("job_id", "VARCHAR", "training job", ("ingero.job.id",)),
    Column(
        "event_seq",
        "BIGINT",
        "number of the event on its node; from 2^51 upward where a merge numbered it, from 2^52 where a server did",
        ("ingero.event.seq",),
    ),
    Column("timestamp_ns", "BIGINT", "Unix nanoseconds on the node's clock; the start of a span"),
    Column("duration_ns", "BIGINT", "length of a span; NULL for samples and points"),
    Column(
        "source",
        "VARCHAR",
        "cuda, driver, graph, nccl, host, io, net, tcp, gpu, python, health, chain, probe or otlp",
    ),
    Column("metric_name", "VARCHAR", "name of the metric, span or event (ncclAllReduce, cudaMalloc, ...)"),
    Column("value_double", "DOUBLE", "value of a sample; NULL for spans and log records"),
    Column("value_int", "BIGINT", "the same value where it was sent as an integer"),
    Column("rank", "INTEGER", "global rank of the training process", ("ingero.rank",)),
    Column("local_rank", "INTEGER", "rank on its node", ("ingero.local_rank",)),
    Column("nranks", "INTEGER", "size of the communicator", ("nccl.nranks",)),
    Column("world_size", "INTEGER", "size of the job", ("ingero.world_size",)),
    Column("gpu_uuid", "VARCHAR", "GPU", ("gpu.uuid",)),
    Column("pid", "BIGINT", "process id", ("process.pid",)),
    Column("tid", "BIGINT", "thread id", ("thread.id",)),
    Column("process", "VARCHAR", "executable name; captured text, not trusted", ("process.executable.name",)),
    Column("comm_id", "VARCHAR", "communicator, 16 hex digits", ("nccl.comm_id_hash",)),
    Column("coll_seq", "BIGINT", "n-th collective of the communicator, from 0", ("nccl.seq",)),
    Column("step", "BIGINT", "training step", ("ingero.step",)),
    Column("bytes", "BIGINT", "bytes moved or allocated", ("nccl.bytes", "cuda.bytes", "io.bytes")),
    Column("cpu_ns", "BIGINT", "time on CPU since the thread's previous collective entry", ("ingero.cpu_ns",)),
    Column("blocked_ns", "BIGINT", "time blocked since then", ("ingero.blocked_ns",)),
    Column("runq_ns", "BIGINT", "time runnable but waiting for a CPU since then", ("ingero.runq_ns",)),
    Column("sync_ns", "BIGINT", "time inside synchronize calls since then (not in the three)", ("ingero.sync_ns",)),
    Column(
        "timing_source",
        "VARCHAR",
        "host_api (call enqueued, nothing more), host_sync, kernel_gpu or recorder; "
        "only kernel_gpu durations are waiting times",
        ("ingero.timing_source",),
    ),
    Column("status", "VARCHAR", "ok or error, where the span or the call said so"),
    Column("causal_chain_id", "VARCHAR", "causal chain", ("causal_chain_id", "ingero.causal_chain_id")),
    Column("trace_id", "VARCHAR", "32 hex digits; the same collective on all ranks is one trace"),
    Column("span_id", "VARCHAR", "16 hex digits"),
    Column("parent_span_id", "VARCHAR", "16 hex digits"),
    Column("stack_id", "VARCHAR", "stack, see metric_name = 'stack'", ("ingero.stack_id",)),
    Column("attrs_json", "VARCHAR", "JSON object: every attribute without a column"),
    Column("node", "VARCHAR", "the same as node_id", computed="node_id"),
    Column("id", "VARCHAR", "node_id:event_seq, to pass back to a tool", computed="node_id || ':' || event_seq"),
)

STORED: tuple[Column, ...] = tuple(column for column in COLUMNS if column.computed is None)
COMPUTED: tuple[Column, ...] = tuple(column for column in COLUMNS if column.computed is not None)

FIRST_SERVER_SEQ = 1 << 52
"""Where a server starts to number events that came without `ingero.event.seq`: apart from the counters of
producers, and still exact in a client whose numbers are doubles."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Who emits: the attributes shared by the events of one node and job."""

    attributes: Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class Span:
    """A thing with a duration; `start_ns` and `end_ns` are Unix nanoseconds on the node's clock."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    trace_id: bytes = b""
    span_id: bytes = b""
    parent_span_id: bytes = b""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric at one time."""

    name: str
    time_ns: int
    value: int | float
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    unit: str = ""
    kind: Literal["gauge", "cumulative", "delta"] = "gauge"
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """A thing that happened at one time; travels as an OTLP log record with an event name."""

    name: str
    time_ns: int
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    body: str = ""


Event = Span | Sample | Point


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query returns: `rows` hold values in column order, `types` are DuckDB type names.

    `truncated` says that a cap stopped the reading and why is in `truncated_by` (rows or bytes).
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[object, ...]]
    truncated: bool = False
    truncated_by: Literal["", "rows", "bytes"] = ""
