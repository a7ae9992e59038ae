"""What an agent's database holds besides events becomes rows of context, one kind (`views.KINDS`) for each table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import views
from ingero_mcp.batches import ARROW_SCHEMA, batch
from ingero_mcp.importers.ingero import tables as tables
from ingero_mcp.importers.ingero.events import op_name, stack_id
from ingero_mcp.importers.ingero.nodes import Nodes
from ingero_mcp.importers.ingero.sqlite import Row
from ingero_mcp.importers.ingero.stacks import frame_texts, json_value

CHUNK_ROWS: Final = 250  # as for events: stores recognise batches by number

_MINUTE_NS: Final = 60 * 10**9
_RANKS: Final = ("rank", "local_rank", "world_size")
Given = Mapping[str, Any]
"""The values of one row, by the names in its table."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """One row of context: values of columns, and facts of its kind. What is None or empty is left out."""

    node: str
    columns: Mapping[str, Any]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """A table, and how a row of it becomes one of a kind."""

    table: tables.Table
    kind: views.Kind
    source: str
    record: Callable[[Given, Nodes], _Recorded]


def batches(source: Source, chunks: Iterator[list[Row]], nodes: Nodes, cluster: str) -> Iterator[pa.RecordBatch]:
    """One batch for each chunk of rows of the table; those with a fault are left out."""
    names = source.table.names
    for chunk in chunks:
        found = [source.record(dict(zip(names, row[2:], strict=True)), nodes) for row in chunk if not row[0]]
        if found:
            yield _batch(source, found, cluster)


def _batch(source: Source, found: list[_Recorded], cluster: str) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "cluster_id": cluster,
        "metric_name": source.kind.metric_name,
        "source": source.source,
        "node_id": [row.node for row in found],
        "attrs_json": [source.kind.attributes(row.facts) for row in found],
    }
    for name in {name for row in found for name in row.columns}:
        columns[name] = pa.array([row.columns.get(name) for row in found], ARROW_SCHEMA.field(name).type)
    return batch(columns, len(found))


def _chain(given: Given, nodes: Nodes) -> _Recorded:
    node = given["node"] or nodes.at(given["detected_at"])
    # Old agents number chains from 1 in every database.
    chain_id = given["id"] if ":" in given["id"] else f"{node}:{given['id']}"
    facts = {name: given[name] for name in ("severity", "summary", "root_cause", "explanation")}
    facts |= {name: json_value(given[name]) for name in ("recommendations", "timeline")}
    # A chain about throughput has zeros here.
    facts |= {
        "op": given["cuda_op"],
        "p99_us": given["cuda_p99_us"] or None,
        "p50_us": given["cuda_p50_us"] or None,
        "tail_ratio": given["tail_ratio"] or None,
    }
    return _Recorded(node, {"timestamp_ns": given["detected_at"], "causal_chain_id": chain_id}, facts)


def _stack(given: Given, nodes: Nodes) -> _Recorded:
    facts = {"frames": frame_texts(given["frames"]), "ips": json_value(given["ips"])}
    return _Recorded(nodes.at(), {"stack_id": stack_id(given["hash"])}, facts)


def _session(given: Given, nodes: Nodes) -> _Recorded:
    started, stopped = given["started_at"], given["stopped_at"]
    columns = {"timestamp_ns": started, **{name: given[name] for name in _RANKS}}
    if stopped and stopped >= started:
        columns["duration_ns"] = stopped - started
    names = {
        "gpu_model": "gpu_model",
        "gpu_driver": "gpu_driver",
        "cpu_model": "cpu_model",
        "cpu_cores": "cpu_cores",
        "mem_total_mb": "mem_total",
        "kernel": "kernel",
        "os_release": "os_release",
        "cuda_version": "cuda_ver",
        "python_version": "python_ver",
        "ingero_version": "ingero_ver",
        "pid_filter": "pid_filter",
        "flags": "flags",
    }
    return _Recorded(given["node"] or nodes.at(started), columns, {fact: given[name] for fact, name in names.items()})


def _process_name(given: Given, nodes: Nodes) -> _Recorded:
    seen = given["seen_at"] or None
    return _Recorded(nodes.at(seen), {"timestamp_ns": seen, "pid": given["pid"], "process": given["name"]}, {})


def _snapshot(given: Given, nodes: Nodes) -> _Recorded:
    facts = {name: given[name] for name in ("cpu_pct", "mem_pct", "load_avg", "swap_mb")}
    facts["mem_available_mb"] = given["mem_avail"]
    return _Recorded(nodes.at(given["timestamp"]), {"timestamp_ns": given["timestamp"]}, facts)


def _aggregate(length_ns: int) -> Callable[[Given, Nodes], _Recorded]:
    def record(given: Given, nodes: Nodes) -> _Recorded:
        begin = given["bucket"]
        columns = {
            "timestamp_ns": begin,
            "duration_ns": length_ns,
            "source": views.AGENT_SOURCES[given["source"]][1],
            "pid": given["pid"],
            "value_int": given["count"],
            "value_double": float(given["count"]),
        }
        facts = {f"{least}_duration_ns": given[f"{least}_dur"] for least in ("sum", "min", "max")}
        facts |= {"op": op_name(given["source"], given["op"])}
        facts |= {name: given[name] for name in ("stored", "sum_arg0")}
        return _Recorded(nodes.at(begin, begin + length_ns - 1), columns, facts)

    return record


def _annotation(given: Given, nodes: Nodes) -> _Recorded:
    begin, end = given["span_start"] or None, given["span_end"] or None
    facts = {
        "labels": json_value(given["labels"]),
        "process_start": given["start_time"] or None,
        "span_start_ns": begin,
        "span_end_ns": end,
        **{name: given[name] for name in ("peer_uid", "peer_gid", "peer_pid")},
    }
    return _Recorded(
        nodes.at(given["timestamp"]), {"timestamp_ns": given["timestamp"], "pid": given["pid"] or None}, facts
    )


def _cgroup(given: Given, nodes: Nodes) -> _Recorded:
    facts = {name: given[name] for name in ("cgroup_id", "container_id", "pod_name", "namespace")}
    return _Recorded(nodes.at(), {}, facts | {"path": given["cgroup_path"]})


def _cgroup_schedstat(given: Given, nodes: Nodes) -> _Recorded:
    begin, end = given["window_start"] or None, given["window_end"] or None
    columns = {"timestamp_ns": begin, "duration_ns": end - begin if begin and end and end >= begin else None}
    facts = {f"{name}_ns": given[name] for name in ("p99_off_cpu", "total_off_cpu")}
    facts |= {name: given[name] for name in ("cgroup_id", "event_count")}
    return _Recorded(nodes.at(begin, end), columns, facts)


SOURCES: Final = (
    Source(tables.CHAINS, views.CHAIN, "chain", _chain),
    Source(tables.STACKS, views.STACK, "probe", _stack),
    Source(tables.SESSIONS, views.SESSION, "probe", _session),
    Source(tables.PROCESS_NAMES, views.PROCESS_NAME, "host", _process_name),
    Source(tables.SNAPSHOTS, views.SNAPSHOT, "host", _snapshot),
    Source(tables.AGGREGATES, views.AGGREGATE, "", _aggregate(_MINUTE_NS)),
    Source(tables.AGGREGATES_5S, views.AGGREGATE_5S, "", _aggregate(_MINUTE_NS // 12)),
    Source(tables.ANNOTATIONS, views.ANNOTATION, "host", _annotation),
    Source(tables.CGROUPS, views.CGROUP, "host", _cgroup),
    Source(tables.CGROUP_SCHEDSTAT, views.CGROUP_SCHEDSTAT, "host", _cgroup_schedstat),
)
"""In this order they are read."""
