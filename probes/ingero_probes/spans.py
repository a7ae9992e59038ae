"""Calls and times off the CPU as the spans and points of the wire contract; pure."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Point, Span
from ingero_probes.decode import Call, OffCpu
from ingero_probes.ranks import Communicator

ToUnix = Callable[[int], int]

MS: Final = 1_000_000
# ncclDataType_t and ncclRedOp_t by number, with the size of an element; numbers above are user defined.
_DATATYPES: Final = (
    ("int8", 1), ("uint8", 1), ("int32", 4), ("uint32", 4), ("int64", 8), ("uint64", 8), ("float16", 2),
    ("float32", 4), ("float64", 8), ("bfloat16", 2), ("float8e4m3", 1), ("float8e5m2", 1),
)  # fmt: skip
_REDUCTIONS: Final = ("sum", "prod", "max", "min", "avg")
_REDUCING: Final = ("ncclAllReduce", "ncclReduceScatter", "ncclReduce")
_ROOTED: Final = ("ncclBroadcast", "ncclBcast", "ncclReduce", "ncclGather", "ncclScatter")
_COPY_KINDS: Final = ("HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice", "Default")


def span_of(call: Call, comm: Communicator | None, job_id: str | None, to_unix: ToUnix) -> Span:
    """The span of a finished call."""
    attributes = attributes_of(call, comm)
    if call.unfinished:
        attributes[semconv.UNFINISHED] = True
    trace_id = b""
    if comm is not None and call.function.kind == "collective" and call.number is not None:
        # The same on every rank: a collective is one trace.
        trace_id = _digest(16, job_id or "", comm.hex, call.number)
    start_ns = to_unix(call.start_ns)
    return Span(
        call.function.name,
        start_ns,
        # The length on the monotonic clock, whatever the wall clock did meanwhile.
        start_ns + call.end_ns - call.start_ns,
        attributes,
        trace_id or _digest(16, call.pid, call.tid, start_ns),
        span_id_of(call),
        failed=call.unfinished,
    )


def open_point(call: Call, comm: Communicator | None, now_mono_ns: int, to_unix: ToUnix) -> Point:
    """The note that a call runs for long and has not ended."""
    attributes: dict[str, AttributeValue] = {
        semconv.CALL_NAME: call.function.name,
        semconv.CALL_SPAN_ID: span_id_of(call).hex(),
        semconv.CALL_START_NS: to_unix(call.start_ns),
        semconv.CALL_LAST_SEEN_NS: to_unix(now_mono_ns),
    }
    return Point(semconv.CALL_OPEN, to_unix(now_mono_ns), attributes | attributes_of(call, comm))


def off_cpu_spans(off: OffCpu, to_unix: ToUnix) -> list[Span]:
    """The parts of 1 ms or more of a time off the CPU: first blocked, then waiting for a CPU.

    Where both are shorter, the longer one stands for the whole.
    """
    parts = [
        (off.state, off.start_ns, off.wake_ns, off.next_pid, off.next_comm),
        # Somebody else ran until the thread came back: who had the CPU last.
        ("runqueue", off.wake_ns, off.end_ns, off.before_pid, off.before_comm),
    ]
    if off.state == "runqueue":
        parts = [("runqueue", off.start_ns, off.end_ns, off.next_pid, off.next_comm)]
    long = [part for part in parts if part[2] - part[1] >= MS]
    if not long:
        state, _, _, pid, comm = max(parts, key=lambda part: part[2] - part[1])
        long = [(state, off.start_ns, off.end_ns, pid, comm)]
    return [_off_cpu_span(off, part, to_unix) for part in long]


def attributes_of(call: Call, comm: Communicator | None) -> dict[str, AttributeValue]:
    """What the contract says of such a call, as far as a probe can know it."""
    attributes: dict[str, AttributeValue] = {
        semconv.PID: call.pid,
        semconv.TID: call.tid,
        semconv.TIMING_SOURCE: call.function.timing_source,
    }
    kind = call.function.kind
    if call.function.name.startswith("nccl"):
        if call.end_ns and not call.unfinished:
            attributes[semconv.NCCL_RETURN_CODE] = call.result
        attributes |= _of_communicator(call, comm) | _of_nccl(call)
    else:
        attributes |= _of_cuda(call)
    if call.window is not None and kind == "collective":
        attributes[semconv.CPU_NS] = call.window.cpu_ns
        attributes[semconv.BLOCKED_NS] = call.window.blocked_ns
        attributes[semconv.RUNQ_NS] = call.window.runq_ns
        attributes[semconv.SYNC_NS] = call.window.sync_ns
    return attributes


def span_id_of(call: Call) -> bytes:
    """The same while the call runs and when it has ended."""
    return _digest(8, call.pid, call.tid, call.start_ns, call.function.name)


def _of_communicator(call: Call, comm: Communicator | None) -> dict[str, AttributeValue]:
    if comm is None:
        return {}
    attributes: dict[str, AttributeValue] = {semconv.NCCL_COMM: comm.hex, semconv.SEQ_ORIGIN: comm.origin}
    if comm.rank is not None:
        attributes[semconv.NCCL_RANK] = comm.rank
    if comm.nranks is not None:
        attributes[semconv.NCCL_NRANKS] = comm.nranks
    return attributes


def _of_nccl(call: Call) -> dict[str, AttributeValue]:
    name, kind = call.function.name, call.function.kind
    attributes: dict[str, AttributeValue] = {semconv.NCCL_OP_TYPE: name}
    if kind in ("collective", "p2p"):
        known = 0 <= call.datatype < len(_DATATYPES)
        datatype, size = _DATATYPES[call.datatype] if known else (str(call.datatype), 0)
        attributes |= {
            semconv.NCCL_COUNT: call.count,
            semconv.NCCL_DATATYPE: datatype,
            semconv.CUDA_STREAM: call.made,
        }
        if size and 0 <= call.count < 2**60:
            attributes[semconv.NCCL_BYTES] = call.count * size
        if call.number is not None:
            attributes[semconv.NCCL_SEQ] = call.number
    if name in _REDUCING:
        attributes[semconv.NCCL_REDUCE_OP] = (
            _REDUCTIONS[call.op] if 0 <= call.op < len(_REDUCTIONS) else f"user-{call.op}"
        )
    if name in _ROOTED:
        attributes[semconv.NCCL_ROOT] = call.peer
    if kind == "p2p":
        attributes[semconv.NCCL_PEER_RANK] = call.peer
    if kind == "split":
        # The rank in the child follows from the keys of all ranks: for whoever sees them all.
        attributes |= {semconv.NCCL_SPLIT_COLOR: call.op, semconv.NCCL_SPLIT_KEY: call.peer}
    return attributes


def _of_cuda(call: Call) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    if call.end_ns and not call.unfinished:
        attributes[semconv.CUDA_RETURN_CODE] = call.result
    if call.count:
        attributes[semconv.CUDA_BYTES] = call.count
    if call.function.name.startswith("cudaMemcpy"):
        known = 0 <= call.op < len(_COPY_KINDS)
        attributes[semconv.CUDA_MEMCPY_KIND] = _COPY_KINDS[call.op] if known else str(call.op)
    if call.function.name in ("cudaStreamSynchronize", "cudaMemcpyAsync"):
        attributes[semconv.CUDA_STREAM] = call.made
    return attributes


def _off_cpu_span(off: OffCpu, part: tuple[str, int, int, int, str], to_unix: ToUnix) -> Span:
    state, start_ns, end_ns, pid, comm = part
    attributes: dict[str, AttributeValue] = {semconv.PID: off.pid, semconv.TID: off.tid, semconv.SCHED_STATE: state}
    if pid:
        # Captured text; pid 0 is the idle task, and then nobody took the CPU.
        attributes |= {semconv.SCHED_NEXT_COMM: comm, semconv.SCHED_NEXT_PID: pid}
    begin_ns = to_unix(start_ns)
    ids = (off.pid, off.tid, start_ns, state)
    return Span(
        semconv.SCHED_OFFCPU, begin_ns, begin_ns + end_ns - start_ns, attributes, _digest(16, *ids), _digest(8, *ids)
    )


def _digest(size: int, *parts: object) -> bytes:
    return blake2b("/".join(map(str, parts)).encode(), digest_size=size).digest()
