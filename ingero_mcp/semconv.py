"""Names on the wire: attribute keys of the contract, and which source an event name belongs to."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

CLUSTER_ID: Final = "ingero.cluster.id"
NODE_ID: Final = "ingero.node.id"
BOOT_ID: Final = "ingero.boot.id"
JOB_ID: Final = "ingero.job.id"
WORLD_SIZE: Final = "ingero.world_size"
NODE_RANK: Final = "ingero.node.rank"
PROVIDER: Final = "ingero.provider"
NODE_INFO: Final = "ingero.node.info"
GPU_MODEL: Final = "ingero.gpu_model"
GPU_COUNT: Final = "ingero.gpu_count"
SERVICE_NAME: Final = "service.name"

RANK: Final = "ingero.rank"
LOCAL_RANK: Final = "ingero.local_rank"
STEP: Final = "ingero.step"
EVENT_SEQ: Final = "ingero.event.seq"
MERGED_SEQ: Final = "ingero.merged_seq"
"""The number that an event had on its node before a merge, which met another event with it, gave it a new one."""
TIMING_SOURCE: Final = "ingero.timing_source"
SEQ_ORIGIN: Final = "ingero.seq_origin"
CAUSAL_CHAIN_ID: Final = "causal_chain_id"
CPU_NS: Final = "ingero.cpu_ns"
BLOCKED_NS: Final = "ingero.blocked_ns"
RUNQ_NS: Final = "ingero.runq_ns"
SYNC_NS: Final = "ingero.sync_ns"
GPU_UUID: Final = "gpu.uuid"
PID: Final = "process.pid"
TID: Final = "thread.id"
PROCESS: Final = "process.executable.name"

NCCL_OP_TYPE: Final = "nccl.op_type"
NCCL_COMM: Final = "nccl.comm_id_hash"
NCCL_SEQ: Final = "nccl.seq"
NCCL_RANK: Final = "nccl.rank"
NCCL_NRANKS: Final = "nccl.nranks"
NCCL_COUNT: Final = "nccl.count"
NCCL_DATATYPE: Final = "nccl.datatype"
NCCL_BYTES: Final = "nccl.bytes"
NCCL_REDUCE_OP: Final = "nccl.reduce_op"
NCCL_PEER_RANK: Final = "nccl.peer_rank"
NCCL_STATE: Final = "nccl.state"
CUDA_STREAM: Final = "cuda.stream"
CUDA_BYTES: Final = "cuda.bytes"
CUDA_RETURN_CODE: Final = "cuda.return_code"

OP_TYPE: Final = "ingero.op_type"
STAGE: Final = "ingero.stage"
DP_RANK: Final = "ingero.dp_rank"
MICRO_BATCH: Final = "ingero.micro_batch"

# Names of points and spans, and what only they carry.
UNFINISHED: Final = "ingero.unfinished"
CALL_NAME: Final = "call.name"
CALL_SPAN_ID: Final = "call.span_id"
CALL_START_NS: Final = "call.start_ns"
CALL_LAST_SEEN_NS: Final = "call.last_seen_ns"
CALL_OPEN: Final = "call.open"
NCCL_RETURN_CODE: Final = "nccl.return_code"
NCCL_ROOT: Final = "nccl.root"
NCCL_SPLIT_COLOR: Final = "nccl.split.color"
NCCL_SPLIT_KEY: Final = "nccl.split.key"
CUDA_MEMCPY_KIND: Final = "cuda.memcpy_kind"
SCHED_STATE: Final = "sched.state"
SCHED_NEXT_COMM: Final = "sched.next_comm"
SCHED_NEXT_PID: Final = "sched.next_pid"
SCHED_OFFCPU: Final = "sched.offcpu"
PROCESS_EXIT: Final = "process.exit"
RANK_SOURCE: Final = "ingero.rank_source"
STEP_SOURCE: Final = "ingero.step_source"
LOST_EVENTS: Final = "probe.lost_events"
GAP_START_NS: Final = "probe.gap.start_ns"
GAP_END_NS: Final = "probe.gap.end_ns"
PROBE_GAP: Final = "probe.gap"
MODEL_CHUNK: Final = "ingero.model_chunk"

# What a job's own recorders and monitors say.
COMMUNICATOR: Final = "nccl.communicator"
COMM_RANKS: Final = "nccl.comm.ranks"
COMM_NAME: Final = "nccl.comm.name"
COMM_DESC: Final = "nccl.comm.desc"
COMM_LAST_ENQUEUED: Final = "nccl.comm.last_enqueued"
COMM_LAST_STARTED: Final = "nccl.comm.last_started"
COMM_LAST_COMPLETED: Final = "nccl.comm.last_completed"
RECORDER_DUMP: Final = "recorder.dump"
RECORDER_ENTRIES: Final = "recorder.entries"
RECORDER_OPEN: Final = "recorder.open"
RECORDER_VERSION: Final = "recorder.version"
HANG_FLAG: Final = "xpu_timer.hang"
STEP_SPAN: Final = "step"
COMPUTE: Final = "compute"

HOST_API: Final = "host_api"
HOST_SYNC: Final = "host_sync"
KERNEL_GPU: Final = "kernel_gpu"
RECORDER: Final = "recorder"

HEALTH_SCORE: Final = "ingero.node.health_score"
NODE_STATE: Final = "ingero.node.state"
ACTIVE: Final = "active"
"""The state of a node that works; one that is calibrating or idle says nothing about its health."""
WORKLOAD_TYPE: Final = "ingero.workload_type"
CGROUP_PATH_HASH: Final = "ingero.cgroup_path_hash"
UNKNOWN: Final = "unknown"

ALIASES: Final[dict[str, str]] = {"ingero.health.score": HEALTH_SCORE}
"""Metric names that are accepted as another one (the Echo post and the agent spell the health score differently)."""

SOURCES: Final[tuple[str, ...]] = (
    "cuda", "driver", "graph", "nccl", "host", "io", "net", "tcp", "gpu", "python", "health", "chain", "probe",
    "otlp",
)  # fmt: skip

_SOURCE_BY_PREFIX: Final[dict[str, str]] = {
    "nccl": "nccl",
    "cudaGraph": "graph",
    "cudaStreamBeginCapture": "graph",
    "cudaStreamEndCapture": "graph",
    "cuda": "cuda",
    "cu": "driver",
    "compute": "gpu",
    "gpu.": "gpu",
    "gpu.cuda.": "cuda",
    "gpu.memcpy.": "cuda",
    "gpu.nccl.": "nccl",
    "sched": "host",
    "process.": "host",
    "oom.": "host",
    "oom_": "host",
    "system.": "host",
    "cgroup.": "host",
    "checkpoint": "host",
    "step": "host",
    "recorder.": "nccl",
    "xpu_timer.": "gpu",
    "annotation": "host",
    "block.": "io",
    "file.": "io",
    "net.": "net",
    "tcp.": "tcp",
    "python.": "python",
    "ingero.node.": "health",
    "ingero.agent.": "health",
    "ingero.anomaly.": "health",
    "causal_chain": "chain",
    "ingero.probe.": "probe",
    "probe.": "probe",
    "clock.": "probe",
    "call.": "probe",
    "stack": "probe",
}


_LONGEST_PREFIX: Final = max(map(len, _SOURCE_BY_PREFIX))


def source_of(name: str) -> str:
    """The source of an event name: the longest matching prefix wins, `otlp` where none matches.

    A prefix that ends in a letter must be followed by something that starts a new word, so that `cumulative`
    is not taken for a CUDA driver call.
    """
    # What decides lies in the first few characters, however long a name somebody sends.
    return _source_of_beginning(name[: _LONGEST_PREFIX + 1])


@lru_cache(maxsize=4096)
def _source_of_beginning(name: str) -> str:
    for length in range(min(len(name), _LONGEST_PREFIX), 0, -1):
        source = _SOURCE_BY_PREFIX.get(name[:length])
        if source is not None and _ends_word(name, length):
            return source
    return "otlp"


def _ends_word(name: str, length: int) -> bool:
    if length == len(name) or not name[length - 1].isalpha():
        return True
    return not name[length].islower()
