"""What the events of a view have in common, per call and rank: made once, shared by all steps."""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue
from ingero_mcp.synth.scenario.block import Signal, Template
from ingero_mcp.synth.scenario.layout import Layout
from ingero_mcp.synth.scenario.numbering import Numbered
from ingero_mcp.synth.scenario.timeline import Op
from ingero_mcp.synth.scenario.truth import View

_OP_TYPES: Final = {"forward": "forward-compute", "backward": "backward-compute", "optimizer": "optimizer"}
_TRACED_OPS: Final = {
    ("ncclReduceScatter", "dp"): "grads-reduce-scatter",
    ("ncclAllGather", "dp"): "params-all-gather",
    ("ncclAllReduce", "dp"): "separate-grads-all-reduce",
    ("ncclAllReduce", "embedding"): "embedding-grads-all-reduce",
    ("ncclAllReduce", "tp"): "layernorm-grads-all-reduce",
}


class Templates:
    """The templates of one view, each made once."""

    def __init__(self, layout: Layout, view: View) -> None:
        self._layout = layout
        self._view = view
        self._made: dict[tuple[object, ...], Template] = {}

    def call(self, numbered: Numbered, place: int, *, unfinished: bool = False) -> Template:
        """A call on a communicator, by the rank at this place among those of the op."""
        op, comm_index = numbered.op, int(numbered.comm[place])
        rank, comm_rank = int(op.ranks[place]), int(numbered.comm_rank[place])
        is_traced = self._view == "optrace"
        key = (op.name, comm_index, comm_rank, op.bytes, numbered.peer, is_traced and op.micro_batch, unfinished)
        known = self._made.get(key)
        if known is not None:
            return known
        comm = self._layout.comms[comm_index]
        attributes: dict[str, AttributeValue] = {
            semconv.NCCL_OP_TYPE: op.name,
            semconv.NCCL_COMM: comm.id,
            semconv.NCCL_RANK: comm_rank,
            semconv.NCCL_NRANKS: len(comm.ranks),
            semconv.TIMING_SOURCE: semconv.HOST_API if self._view == "probe" else semconv.KERNEL_GPU,
        }
        if numbered.peer >= 0:
            attributes[semconv.NCCL_PEER_RANK] = numbered.peer
        if unfinished:
            attributes[semconv.UNFINISHED] = True
        attributes |= self._traced(op, rank) if is_traced else _payload(op)
        if self._view == "probe":
            attributes |= {semconv.SEQ_ORIGIN: "init", semconv.CUDA_STREAM: 9, semconv.NCCL_RETURN_CODE: 0}
        return self._make(key, "span", op.name, attributes)

    def compute(self, op: Op, rank: int) -> Template:
        """Work of a rank on its GPU."""
        stage, dp_rank, _ = self._layout.place(rank)
        attributes: dict[str, AttributeValue] = {
            semconv.TIMING_SOURCE: semconv.KERNEL_GPU,
            semconv.OP_TYPE: _OP_TYPES[op.name],
            semconv.STAGE: stage,
            semconv.DP_RANK: dp_rank,
        }
        attributes |= _micro_batch(op)
        return self._make(("compute", rank, op.name, op.micro_batch), "span", semconv.COMPUTE, attributes)

    def sync(self) -> Template:
        """A synchronize call."""
        attributes: dict[str, AttributeValue] = {
            semconv.TIMING_SOURCE: semconv.HOST_SYNC,
            semconv.CUDA_STREAM: 7,
            semconv.CUDA_RETURN_CODE: 0,
        }
        return self._make(("sync",), "span", "cudaStreamSynchronize", attributes)

    def open_sync(self, rank: int) -> Template:
        """The note that a synchronize call has not returned."""
        attributes: dict[str, AttributeValue] = {
            semconv.CALL_NAME: "cudaStreamSynchronize",
            semconv.CALL_SPAN_ID: f"{rank:016x}",
            semconv.TIMING_SOURCE: semconv.HOST_SYNC,
            semconv.CUDA_STREAM: 7,
        }
        return self._make(("open", rank), "point", semconv.CALL_OPEN, attributes)

    def _traced(self, op: Op, rank: int) -> dict[str, AttributeValue]:
        stage, dp_rank, _ = self._layout.place(rank)
        kind, _, direction = op.group.partition("/")
        name = f"{direction}-{op.kind}" if direction else _TRACED_OPS.get((op.name, kind), "optimizer-clip-main-grad")
        attributes: dict[str, AttributeValue] = {
            semconv.OP_TYPE: name,
            semconv.STAGE: stage,
            semconv.DP_RANK: dp_rank,
        }
        return attributes | _micro_batch(op)

    def _make(
        self, key: tuple[object, ...], signal: Signal, name: str, attributes: dict[str, AttributeValue]
    ) -> Template:
        if key not in self._made:
            self._made[key] = Template(signal, name, attributes)
        return self._made[key]


def _micro_batch(op: Op) -> dict[str, AttributeValue]:
    return {semconv.MICRO_BATCH: op.micro_batch} if op.micro_batch >= 0 else {}


def _payload(op: Op) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        semconv.NCCL_COUNT: max(op.bytes // 2, 1),
        semconv.NCCL_DATATYPE: "bfloat16",
        semconv.NCCL_BYTES: op.bytes,
    }
    if op.name in ("ncclAllReduce", "ncclReduceScatter"):
        attributes[semconv.NCCL_REDUCE_OP] = "sum"
    return attributes
