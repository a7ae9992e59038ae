"""The codes of an Ingero agent, and its own table over our events, so that SQL written for it runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ingero_mcp.views.view import View, attribute, whole

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
    return f"coalesce({whole(key)}, 0)"


_INGERO_EVENTS: Final = f"""
    SELECT coalesce({attribute(AGENT_ID)}, id) AS id,
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


AGENT_VIEWS: Final = (
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
