"""Rows of an agent's `events` become batches of events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import semconv, views
from ingero_mcp.batches import batch
from ingero_mcp.importers.imported import Names
from ingero_mcp.importers.ingero.nodes import Nodes, ProcessNames
from ingero_mcp.importers.ingero.sqlite import Row
from ingero_mcp.importers.ingero.tables import EVENTS

CHUNK_ROWS: Final = 20_000  # stores recognise batches by number: with another size they would not
STACK_IPS: Final = "ingero.stack_ips"

_MEMBERS: Final = (
    (views.AGENT_GPU_ID, "gpu_id"),
    (views.AGENT_ARG0, "arg0"),
    (views.AGENT_ARG1, "arg1"),
    (views.AGENT_RET_CODE, "ret_code"),
    (views.AGENT_CGROUP_ID, "cgroup_id"),
    (views.AGENT_ID, "odd_id"),
    (STACK_IPS, "stack_ips"),
)
_CALLS: Final = ("cuda", "driver", "graph", "nccl")
_SYNCHRONIZE: Final = frozenset({"cudaStreamSync", "cudaDeviceSync", "cuCtxSynchronize"})
_COPY: Final = "cudaMemcpy"
_TO_HOST: Final = (0, 2)  # directions (arg1) of a copy that returns when the data are there
_ARG0: Final = frozenset({
    "cudaMalloc", "cudaMallocManaged", "cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpy2D", "cudaMemcpy2DAsync",
    "cudaMemcpyPeer", "cudaMemcpyPeerAsync", "cuMemcpy", "cuMemcpyAsync", "cuMemAlloc", "cuMemAllocManaged",
    "mm_page_alloc",
})  # fmt: skip
_ARG1: Final = frozenset({"net_send", "net_recv", "mm_page_alloc_summary"})
_SECTOR_BYTES: Final = 512
_MOST_SECTORS: Final = 2**53
_NUMBER_BITS: Final = 32
_MASK: Final = 2**64 - 1

Bytes = Callable[[int | None, int | None], int | None]


@dataclass(frozen=True, slots=True)
class _Op:
    """What is known of an operation; `bytes_of` finds its bytes in arg0 and arg1."""

    name: str
    source: str
    timing: str | None
    bytes_of: Bytes


class EventBatches:
    """Makes batches of the rows of one file."""

    def __init__(self, nodes: Nodes, processes: ProcessNames, names: Names, digest: bytes) -> None:
        self._nodes = nodes
        self._processes = processes
        self._cluster = names.cluster
        # Events without a number of their node get the agent's row number above a base taken from the content: where
        # producers count, exact in a double, and unlikely to meet those of another file.
        self._base = int.from_bytes(digest[:8]) % (1 << (51 - _NUMBER_BITS)) << _NUMBER_BITS
        self._ops: dict[tuple[int, int], _Op] = {}

    def batches(self, chunks: Iterator[list[Row]]) -> Iterator[pa.RecordBatch]:
        """One batch for each chunk of rows of `EVENTS`; those with a fault are left out."""
        for chunk in chunks:
            kept = [row for row in chunk if not row[0]]
            if kept:
                yield self._batch(dict(zip(EVENTS.names, list(zip(*kept, strict=True))[2:], strict=True)), len(kept))

    def _batch(self, given: dict[str, Sequence[Any]], rows: int) -> pa.RecordBatch:
        ops = [self._op(*codes) for codes in zip(given["source"], given["op"], strict=True)]
        node = [name or self._nodes.given for name in given["node"]]
        columns: dict[str, Any] = {
            "cluster_id": self._cluster,
            "node_id": node,
            "event_seq": [self._seq(*facts) for facts in zip(given["number"], given["odd_id"], strict=True)],
            "timestamp_ns": _begin(given, ops),
            "source": [op.source for op in ops],
            "metric_name": [op.name for op in ops],
            "process": self._process_names(given, node),
            "bytes": [
                op.bytes_of(arg0, arg1) for op, arg0, arg1 in zip(ops, given["arg0"], given["arg1"], strict=True)
            ],
            "timing_source": [_timing(op, arg1) for op, arg1 in zip(ops, given["arg1"], strict=True)],
            "status": [_status(op, ret_code) for op, ret_code in zip(ops, given["ret_code"], strict=True)],
            "stack_id": [stack_id(hash_) for hash_ in given["stack_hash"]],
            "duration_ns": given["duration"],
            "attrs_json": _attributes(given, rows),
        }
        columns |= {name: given[name] for name in ("pid", "tid", "rank", "local_rank", "world_size")}
        return batch(columns, rows)

    def _op(self, source: int, op: int) -> _Op:
        known = self._ops.get((source, op))
        if known is None:
            known = self._ops[source, op] = _describe(source, op)
        return known

    def _seq(self, number: int | None, odd_id: int | str | None) -> int | None:
        if number is None or odd_id is None:
            return number
        return self._base + number if 0 <= number < 1 << _NUMBER_BITS else None

    def _process_names(self, given: dict[str, Sequence[Any]], node: Sequence[str]) -> list[str | None]:
        rows = zip(given["comm"], node, given["pid"], given["timestamp"], strict=True)
        return [comm or self._processes.at(where, pid, time_ns) for comm, where, pid, time_ns in rows]


def op_name(source: int, op: int) -> str:
    """The name of an operation by the agent's codes; one that is not known keeps its number in the name."""
    return views.AGENT_OPS[source].get(op) or f"{views.UNKNOWN_OP}{views.AGENT_SOURCES[source][1]}.{op}"


def stack_id(hash_: int | None) -> str | None:
    """A stack hash, which SQLite holds as a signed number, as 16 hex digits; 0 is no stack."""
    return format(hash_ & _MASK, "016x") if hash_ else None


def _describe(source: int, op: int) -> _Op:
    name, kind = op_name(source, op), views.AGENT_SOURCES[source][1]
    timing = None
    if kind in _CALLS:
        timing = semconv.HOST_SYNC if name in _SYNCHRONIZE else semconv.HOST_API
    bytes_of: Bytes = _nothing
    if kind == "io":
        bytes_of = _sectors
    elif name == "cudaFree":
        bytes_of = _freed
    elif name in _ARG0:
        bytes_of = _first
    elif name in _ARG1:
        bytes_of = _second
    return _Op(name, kind, timing, bytes_of)


def _nothing(_arg0: int | None, _arg1: int | None) -> int | None:
    return None


def _first(arg0: int | None, _arg1: int | None) -> int | None:
    # Amounts are unsigned and stored as signed: a negative one is none.
    return None if arg0 is None or arg0 < 0 else arg0


def _second(_arg0: int | None, arg1: int | None) -> int | None:
    return _first(arg1, None)


def _sectors(arg0: int | None, _arg1: int | None) -> int | None:
    return None if arg0 is None or not 0 <= arg0 < _MOST_SECTORS else arg0 * _SECTOR_BYTES


def _freed(_arg0: int | None, arg1: int | None) -> int | None:
    return _first(arg1, None) or None  # 0: the agent had not seen the allocation


def _begin(given: dict[str, Sequence[Any]], ops: Sequence[_Op]) -> list[int]:
    """When events began: an agent stamps calls at entry, but everything else when it was over."""
    rows = zip(given["timestamp"], given["duration"], ops, strict=True)
    return [stamp - duration if op.source in views.COMPLETED else stamp for stamp, duration, op in rows]


def _timing(op: _Op, arg1: int | None) -> str | None:
    return semconv.HOST_SYNC if op.name == _COPY and arg1 in _TO_HOST else op.timing


def _status(op: _Op, ret_code: int | None) -> str | None:
    if op.timing is None or ret_code is None:
        return None
    return "error" if ret_code else "ok"


def _attributes(given: dict[str, Sequence[Any]], rows: int) -> list[str]:
    """attrs_json: the numbers that have no column, without those that are 0, and text in the rare rows with some."""
    members = [""] * rows
    for key, name in _MEMBERS:
        begin = f',"{key}":'
        for row, value in enumerate(given[name]):
            if value or (value == 0 and name == "odd_id"):
                members[row] += begin + (str(value) if isinstance(value, int) else json.dumps(value))
    return [f"{{{text[1:]}}}" for text in members]
