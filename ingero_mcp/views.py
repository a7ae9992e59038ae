"""The relations that SQL may read: `events` and the views over it. Public API, with documented columns.

The store creates them, the guard allows them and nothing else, docs/schema.md lists them.

What a node knew besides its events (a `Kind`) is kept in the columns of events: `metric_name` names the kind, its
own facts are attributes under the kind's prefix. Importers write them to the store's context; causal chains, stacks
and annotations also arrive as OTLP log records, with the same names and attributes, and lie in `events`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from ingero_mcp.events import COLUMNS, STORED


@dataclass(frozen=True, slots=True)
class View:
    """A public view; `columns` are (name, doc) pairs in order, `sql` is its definition over `events`."""

    name: str
    doc: str
    columns: tuple[tuple[str, str], ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A column of a kind's view: an expression over the columns of events, or by default the fact of that name."""

    name: str
    doc: str
    type: Literal["VARCHAR", "BIGINT", "DOUBLE"] = "VARCHAR"
    sql: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """What rows of one `metric_name` record, and the view that shows them.

    `on_the_wire` kinds may also be among the events. Rows that agree in the columns of `one_per` are shown as one.
    """

    metric_name: str
    prefix: str
    view: str
    doc: str
    shown: tuple[Shown, ...]
    on_the_wire: bool = False
    one_per: tuple[str, ...] = ()

    def key(self, fact: str) -> str:
        """The attribute that holds a fact: `ingero.chain.severity`."""
        return f"{self.prefix}{fact}"


def _attribute(key: str) -> str:
    return f"""json_extract_string(attrs_json, '$."{key}"')"""


_PLACE: Final = (Shown("cluster_id", "cluster", sql="cluster_id"), Shown("node_id", "node", sql="node_id"))
_PID: Final = Shown("pid", "process id", sql="pid")
_RANKS: Final = (
    Shown("rank", "global rank", sql="rank"),
    Shown("local_rank", "rank on its node", sql="local_rank"),
    Shown("world_size", "size of the job", sql="world_size"),
)

CHAIN: Final = Kind(
    "causal_chain",
    "ingero.chain.",
    "chains",
    "one row per causal chain that a node detected: what was slow, and what happened beside it",
    (
        *_PLACE,
        Shown("chain_id", "chain; an Ingero agent writes node:descriptor", sql="causal_chain_id"),
        Shown("detected_ns", "when it was detected, Unix ns", sql="timestamp_ns"),
        Shown("severity", "HIGH, MEDIUM or LOW"),
        Shown(
            "summary",
            "one line",
            sql=f"coalesce({_attribute('ingero.chain.summary')}, {_attribute('otlp.log.body')})",
        ),
        Shown("root_cause", "what was seen in the same time; not proven to be the cause"),
        Shown("explanation", "a paragraph"),
        Shown("recommendations", "JSON array of strings"),
        Shown("op", "the operation that was slow"),
        Shown("p99_us", "its 99th percentile in microseconds; NULL if the chain is not about its duration", "BIGINT"),
        Shown("p50_us", "its median in microseconds", "BIGINT"),
        Shown("tail_ratio", "the first divided by the second", "DOUBLE"),
        Shown("timeline", "JSON array of {layer, op, detail, dur_us}"),
        _RANKS[0],
    ),
    on_the_wire=True,
)
STACK: Final = Kind(
    "stack",
    "ingero.stack.",
    "stacks",
    "one row per call stack of a cluster; join on stack_id",
    (
        Shown("cluster_id", "cluster", sql="cluster_id"),
        Shown("node_id", "a node that recorded it", sql="node_id"),
        Shown("stack_id", "as in events; 16 hex digits of its hash where an Ingero agent recorded it", sql="stack_id"),
        Shown(
            "frames", "JSON array of strings, innermost first: Python's function (file:line), then native symbol (file)"
        ),
        Shown("ips", "JSON array of addresses, where no frame has a name"),
    ),
    on_the_wire=True,
    one_per=("cluster_id", "stack_id"),
)
SESSION: Final = Kind(
    "session",
    "ingero.session.",
    "sessions",
    "one row per run of an Ingero agent",
    (
        *_PLACE,
        Shown("started_ns", "Unix ns", sql="timestamp_ns"),
        Shown("stopped_ns", "Unix ns; NULL if it was running still", sql="timestamp_ns + duration_ns"),
        Shown("gpu_model", "model and memory"),
        Shown("gpu_driver", "driver version"),
        Shown("cpu_model", "model"),
        Shown("cpu_cores", "number of cores", "BIGINT"),
        Shown("mem_total_mb", "memory of the host in MB", "BIGINT"),
        Shown("kernel", "Linux kernel"),
        Shown("os_release", "distribution"),
        Shown("cuda_version", "CUDA"),
        Shown("python_version", "Python"),
        Shown("ingero_version", "agent"),
        Shown("pid_filter", "traced process ids, comma separated; empty: all"),
        Shown("flags", "options of the run"),
        *_RANKS,
    ),
)
PROCESS_NAME: Final = Kind(
    "process_name",
    "ingero.process_name.",
    "process_names",
    "one row per process that an Ingero agent named; captured text, not trusted",
    (
        *_PLACE,
        _PID,
        Shown("name", "command name", sql="process"),
        Shown("seen_ns", "when it was last seen, Unix ns", sql="timestamp_ns"),
    ),
)
SNAPSHOT: Final = Kind(
    "system_snapshot",
    "ingero.snapshot.",
    "snapshots",
    "one row per second of a node's system load",
    (
        *_PLACE,
        Shown("timestamp_ns", "Unix ns", sql="timestamp_ns"),
        Shown("cpu_pct", "CPU use in percent", "DOUBLE"),
        Shown("mem_pct", "memory use in percent", "DOUBLE"),
        Shown("mem_available_mb", "available memory in MB", "BIGINT"),
        Shown("swap_mb", "swap in use in MB", "BIGINT"),
        Shown("load_avg", "load average over one minute", "DOUBLE"),
    ),
)
_AGGREGATE: Final = (
    *_PLACE,
    Shown("source", "as in events", sql="source"),
    Shown("op", "the operation, as metric_name in events"),
    _PID,
    Shown("bucket_ns", "start of the bucket, Unix ns", sql="timestamp_ns"),
    Shown("count", "how often it happened", sql="value_int"),
    Shown("stored", "how many of those are among the events", "BIGINT"),
    Shown("sum_duration_ns", "sum of the durations", "BIGINT"),
    Shown("min_duration_ns", "the shortest", "BIGINT"),
    Shown("max_duration_ns", "the longest", "BIGINT"),
    Shown("sum_arg0", "sum of arg0 where it is an amount: bytes of allocations and copies", "BIGINT"),
)
AGGREGATE: Final = Kind(
    "op_aggregate",
    "ingero.aggregate.",
    "aggregates",
    "one row per minute, operation and process with what really happened; an agent stores only some of it as events",
    _AGGREGATE,
)
AGGREGATE_5S: Final = Kind(
    "op_aggregate_5s",
    "ingero.aggregate.",
    "aggregates_5s",
    "the same per 5 seconds, for the last ten minutes; do not add to aggregates, which holds the same calls",
    _AGGREGATE,
)
ANNOTATION: Final = Kind(
    "annotation",
    "ingero.annotation.",
    "annotations",
    "one row per note that a person or a job put into the recording",
    (
        *_PLACE,
        Shown("timestamp_ns", "Unix ns", sql="timestamp_ns"),
        Shown("labels", "JSON object", sql=f"coalesce({_attribute('ingero.annotation.labels')}, attrs_json)"),
        Shown("pid", "process it is about; NULL: the whole recording", sql="pid"),
        Shown("process_start", "start of that process in clock ticks since boot", "BIGINT"),
        Shown("span_start_ns", "start of the time it is about, Unix ns", "BIGINT"),
        Shown("span_end_ns", "end of that time, Unix ns", "BIGINT"),
        Shown("peer_uid", "user id of who sent it", "BIGINT"),
        Shown("peer_gid", "group id of who sent it", "BIGINT"),
        Shown("peer_pid", "process id of who sent it", "BIGINT"),
    ),
    on_the_wire=True,
)
CGROUP: Final = Kind(
    "cgroup",
    "ingero.cgroup.",
    "cgroups",
    "one row per cgroup, with its container and pod",
    (
        *_PLACE,
        Shown("cgroup_id", "as in ingero_events", "BIGINT"),
        Shown("container_id", "container"),
        Shown("path", "path in /sys/fs/cgroup"),
        Shown("pod_name", "Kubernetes pod"),
        Shown("namespace", "its namespace"),
    ),
)
CGROUP_SCHEDSTAT: Final = Kind(
    "cgroup_schedstat",
    "ingero.cgroup.",
    "cgroup_schedstat",
    "one row per cgroup and time window with how long its threads were off CPU",
    (
        *_PLACE,
        Shown("cgroup_id", "as in cgroups", "BIGINT"),
        Shown("window_start_ns", "Unix ns", sql="timestamp_ns"),
        Shown("window_end_ns", "Unix ns", sql="timestamp_ns + duration_ns"),
        Shown("p99_off_cpu_ns", "99th percentile of the times off CPU", "BIGINT"),
        Shown("total_off_cpu_ns", "their sum", "BIGINT"),
        Shown("event_count", "their number", "BIGINT"),
    ),
)
KINDS: Final = (
    CHAIN, STACK, SESSION, PROCESS_NAME, SNAPSHOT, AGGREGATE, AGGREGATE_5S, ANNOTATION, CGROUP, CGROUP_SCHEDSTAT
)  # fmt: skip

AGENT_SOURCES: Final[dict[int, tuple[str, str]]] = {
    1: ("CUDA", "cuda"),
    3: ("HOST", "host"),
    4: ("DRIVER", "driver"),
    5: ("IO", "io"),
    6: ("TCP", "tcp"),
    7: ("NET", "net"),
    8: ("CUDA_GRAPH", "graph"),
    9: ("NCCL", "nccl"),
}
"""The codes of an Ingero agent for where an event comes from: its own name, and the `source` that it is here."""


def _numbered(names: str) -> dict[int, str]:
    return dict(enumerate(names.split(), start=1))


AGENT_OPS: Final[dict[int, dict[int, str]]] = {
    1: _numbered(
        "cudaMalloc cudaFree cudaLaunchKernel cudaMemcpy cudaStreamSync cudaDeviceSync cudaMemcpyAsync "
        "cudaMallocManaged cudaMemcpy2D cudaMemcpy2DAsync cudaMemcpyPeer cudaMemcpyPeerAsync"
    ),
    3: {
        **_numbered("sched_switch sched_wakeup mm_page_alloc oom_kill process_exec process_exit process_fork"),
        10: "pod_restart",
        11: "pod_eviction",
        12: "pod_oom_kill",
        20: "mm_page_alloc_summary",
        21: "sched_switch_summary",
    },
    4: _numbered("cuLaunchKernel cuMemcpy cuMemcpyAsync cuCtxSynchronize cuMemAlloc cuMemAllocManaged"),
    5: _numbered("block_read block_write block_discard"),
    6: _numbered("tcp_retransmit"),
    7: _numbered("net_send net_recv"),
    8: _numbered(
        "graphBeginCapture graphEndCapture graphInstantiate graphLaunch graphDestroy graphExecUpdate graphExecDestroy"
    ),
    9: _numbered(
        "ncclCommInitRank ncclCommDestroy ncclAllReduce ncclAllGather ncclReduceScatter ncclBcast ncclSend ncclRecv "
        "ncclCommInitAll"
    ),
}
"""Its codes for operations, by source; the names are the `metric_name` of imported events."""

COMPLETED: Final = ("host", "io", "tcp", "net")
"""Sources whose events an agent stamps when they end; all others when they begin."""

UNKNOWN_OP: Final = "op."
"""What the `metric_name` of an event begins with if nothing but the code of its operation is known: `op.cuda.99`."""

AGENT_ID, AGENT_GPU_ID, AGENT_RET_CODE = "ingero.id", "ingero.gpu_id", "ingero.ret_code"
AGENT_ARG0, AGENT_ARG1, AGENT_CGROUP_ID = "ingero.arg0", "ingero.arg1", "ingero.cgroup_id"
"""Attributes of imported events. A number that is 0 is left out; `ingero.id` is there if `id` is not what it was."""

# As the span contract calls them; the agent has shorter names.
_FULL_NAMES: Final = {"cudaStreamSync": "cudaStreamSynchronize", "cudaDeviceSync": "cudaDeviceSynchronize"}


def _values(rows: Iterable[tuple[int | str, ...]]) -> str:
    return ", ".join(f"({', '.join(repr(cell) for cell in row)})" for row in rows)


_OPS: Final = tuple((source, op, name) for source, ops in AGENT_OPS.items() for op, name in ops.items())
_CODES: Final = _values(
    (source, AGENT_SOURCES[source][1], op, name, known_as)
    for source, op, name in _OPS
    for known_as in dict.fromkeys((name, _FULL_NAMES.get(name, name)))
)
_UNKNOWN_SOURCE: Final = " ".join(f"WHEN '{name}' THEN {code}" for code, (_, name) in AGENT_SOURCES.items())


def _number(key: str) -> str:
    return f"coalesce(TRY_CAST({_attribute(key)} AS BIGINT), 0)"


_INGERO_EVENTS: Final = f"""
    SELECT coalesce({_attribute(AGENT_ID)}, id) AS id,
           CASE WHEN events.source IN {COMPLETED} THEN timestamp_ns + coalesce(duration_ns, 0)
                ELSE timestamp_ns END AS timestamp,
           pid, tid, coalesce(codes.source_code, CASE events.source {_UNKNOWN_SOURCE} END) AS source,
           events.source AS source_name,
           coalesce(codes.op, TRY_CAST(split_part(metric_name, '.', 3) AS INTEGER)) AS op,
           coalesce(codes.name, metric_name) AS op_name,
           coalesce(duration_ns, 0) AS duration, {_number(AGENT_GPU_ID)} AS gpu_id, {_number(AGENT_ARG0)} AS arg0,
           {_number(AGENT_ARG1)} AS arg1, {_number(AGENT_RET_CODE)} AS ret_code,
           CAST(coalesce(h - CASE WHEN h > 9223372036854775807 THEN 18446744073709551616 ELSE 0 END, 0) AS BIGINT)
               AS stack_hash,
           node_id AS node, rank, local_rank, world_size, coalesce(process, '') AS comm,
           {_number(AGENT_CGROUP_ID)} AS cgroup_id
    FROM (SELECT *, CAST(TRY_CAST('0x' || stack_id AS UBIGINT) AS HUGEINT) AS h FROM main.events) AS events
    LEFT JOIN (VALUES {_CODES}) AS codes(source_code, source, op, name, known_as)
        ON codes.known_as = events.metric_name AND codes.source = events.source
    WHERE codes.op IS NOT NULL OR (starts_with(metric_name, '{UNKNOWN_OP}') AND CASE events.source
        {_UNKNOWN_SOURCE} END IS NOT NULL)
    """


def _column(kind: Kind, shown: Shown) -> str:
    fact = _attribute(kind.key(shown.name))
    value = shown.sql or (fact if shown.type == "VARCHAR" else f"TRY_CAST({fact} AS {shown.type})")
    if kind.one_per and shown.name not in kind.one_per:
        value = f"min({value})"
    return f"{value} AS {shown.name}"


def _view(kind: Kind) -> View:
    # The filter comes before any JSON is parsed: among the events few rows are of a kind. What two files hold (a
    # database, and one that was merged from it) is shown once; the number of a row says nothing about it.
    of_kind = f"WHERE metric_name = '{kind.metric_name}'"
    stored = ", ".join(column.name for column in STORED if column.name != "event_seq")
    rows = f"SELECT DISTINCT {stored} FROM ingero_private.context {of_kind}"
    if kind.on_the_wire:
        rows = f"SELECT {stored} FROM main.events {of_kind} UNION ALL {rows}"
    sql = f"SELECT {', '.join(_column(kind, shown) for shown in kind.shown)} FROM ({rows})"
    if kind.one_per:
        sql += f" GROUP BY {', '.join(kind.one_per)}"
    return View(kind.view, kind.doc, tuple((shown.name, shown.doc) for shown in kind.shown), sql)


VIEWS: Final[tuple[View, ...]] = (
    View(
        "nodes",
        "one row per node with what it has sent",
        (
            ("cluster_id", "cluster"),
            ("node_id", "node"),
            ("events", "number of events"),
            ("ranks", "number of distinct ranks seen"),
            ("first_ns", "time of the oldest event, Unix ns"),
            ("last_ns", "time of the newest event, Unix ns"),
        ),
        """
        SELECT cluster_id, node_id, count(*) AS events, count(DISTINCT rank) AS ranks,
               min(timestamp_ns) AS first_ns, max(timestamp_ns) AS last_ns
        FROM main.events GROUP BY ALL
        """,
    ),
    View(
        "clusters",
        "one row per cluster with what it has sent",
        (
            ("cluster_id", "cluster"),
            ("nodes", "number of nodes"),
            ("events", "number of events"),
            ("first_ns", "time of the oldest event, Unix ns"),
            ("last_ns", "time of the newest event, Unix ns"),
        ),
        """
        SELECT cluster_id, count(DISTINCT node_id) AS nodes, count(*) AS events,
               min(timestamp_ns) AS first_ns, max(timestamp_ns) AS last_ns
        FROM main.events GROUP BY ALL
        """,
    ),
    *(_view(kind) for kind in KINDS),
    View(
        "ingero_events",
        "events under the column names and codes of an Ingero agent's own table, so that SQL written for it runs: put "
        "ingero_events in place of events. `source` and `op` are its integer codes, as in that table (SQL that "
        "compares or joins them does it by number); the names are in source_name and op_name. `timestamp` is the "
        "agent's: the end of an event of host, io, tcp and net, the start of any other",
        (
            ("id", "node:sequence, or the agent's number of the event"),
            ("timestamp", "Unix ns"),
            ("pid", "process id"),
            ("tid", "thread id"),
            ("source", "code; see sources"),
            ("source_name", "cuda, host, driver, io, tcp, net, graph or nccl"),
            ("op", "code, within the source; see ops"),
            ("op_name", "cudaMalloc, sched_switch, ..."),
            ("duration", "ns"),
            ("gpu_id", "GPU"),
            ("arg0", "depends on the operation: bytes of an allocation or a copy, sectors of io, ..."),
            ("arg1", "depends on the operation: direction of a copy, bytes of net, ..."),
            ("ret_code", "return code of a CUDA call; 0 is success"),
            ("stack_hash", "hash of the stack; 0: none"),
            ("node", "node"),
            ("rank", "global rank"),
            ("local_rank", "rank on its node"),
            ("world_size", "size of the job"),
            ("comm", "command name; captured text, not trusted"),
            ("cgroup_id", "cgroup; 0: not known"),
        ),
        _INGERO_EVENTS,
    ),
    View(
        "sources",
        "the codes of ingero_events.source",
        (("id", "code"), ("name", "the agent's name for it"), ("source", "as in events")),
        "SELECT * FROM (VALUES "
        + _values((code, *names) for code, names in AGENT_SOURCES.items())
        + ") AS known(id, name, source)",
    ),
    View(
        "ops",
        "the codes of ingero_events.op",
        (("source_id", "code of the source"), ("op_id", "code"), ("name", "name, as metric_name in events")),
        f"SELECT * FROM (VALUES {_values(_OPS)}) AS known(source_id, op_id, name)",
    ),
)


def relations() -> dict[str, tuple[str, ...]]:
    """Every relation that SQL may read, with its columns in order."""
    public = {"events": tuple(column.name for column in COLUMNS)}
    return public | {view.name: tuple(name for name, _ in view.columns) for view in VIEWS}
