"""The kinds of what a node knew besides its events."""

from __future__ import annotations

from typing import Final

from ingero_mcp.views.kind import Kind, Shown
from ingero_mcp.views.view import attribute

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
    "one row per causal chain: what was slow or stuck, and why, as a node's agent detected it or this server's watch "
    "(kind stall: a job); query_fleet also shows those that nobody stored, computed when it is asked",
    (
        *_PLACE,
        Shown("chain_id", "chain; an Ingero agent writes node:descriptor", sql="causal_chain_id"),
        Shown(
            "kind",
            "stall, tail_latency, throughput_drop, oom, tcp_retransmit, pod_restart, pod_eviction, noisy_neighbour or "
            "cuda_graph; NULL where an Ingero agent did not say",
        ),
        Shown(
            "detected_ns",
            "when it was detected, Unix ns",
            sql=f"coalesce(TRY_CAST({attribute('ingero.chain.detected_ns')} AS BIGINT), timestamp_ns)",
        ),
        Shown(
            "start_ns",
            "when it began, Unix ns; NULL where that was not recorded",
            "BIGINT",
            sql=f"CASE WHEN {attribute('ingero.chain.detected_ns')} IS NOT NULL THEN timestamp_ns END",
        ),
        Shown("end_ns", "when it ended, Unix ns; NULL while it goes on, or where that was not recorded", "BIGINT"),
        Shown("severity", "HIGH, MEDIUM or LOW"),
        Shown(
            "summary",
            "one line",
            sql=f"coalesce({attribute('ingero.chain.summary')}, {attribute('otlp.log.body')})",
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
        Shown("job_id", "the job, where it is about one", sql="job_id"),
        Shown("verdict", "of a stall: straggler, hang, imbalance or network"),
        Shown("cause", "of a stall: a cause as explain_stall names them"),
        Shown("confidence", "of a stall: 0 to 1", "DOUBLE"),
        Shown("ranks", "of a stall: JSON array of the ranks at fault"),
        Shown("nodes", "of a stall: JSON array of the nodes of the ranks at fault"),
        Shown("groups", "of a stall: JSON array of {kind, id, ranks} at fault as a whole"),
        Shown("evidence", "JSON array of {statement, value, unit, event_ids}"),
        Shown("cost", "of a stall: JSON of what it costs in a day if it goes on"),
        Shown("last_bad_ns", "of a stall: end of the last bad step that was seen, Unix ns", "BIGINT"),
        Shown("window_start_ns", "of a stall: begin of the time it was judged by, Unix ns", "BIGINT"),
        Shown("window_end_ns", "of a stall: end of the time it was judged by, Unix ns", "BIGINT"),
        Shown("updated_ns", "when this server last wrote it, Unix ns; NULL for one that it did not write", "BIGINT"),
    ),
    on_the_wire=True,
    updated="updated_ns",
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
        Shown("labels", "JSON object", sql=f"coalesce({attribute('ingero.annotation.labels')}, attrs_json)"),
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
