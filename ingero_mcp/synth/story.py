"""The story of the demo: eight ranks on two hosts, and one rank that the other seven wait for.

Every step ends in an all-reduce. Seven ranks reach it after 86 ms or so; every 14th step rank 5 first returns its
cached GPU memory (a burst of cudaFree) and asks for it again (a burst of cudaMalloc), and arrives 290 ms late. The two
hosts' clocks differ by 37 ms, there is jitter, and the probe lost one event. All times below are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Point, Resource, Span

MS: Final = 1_000_000
US: Final = 1_000
RANKS: Final = 8
RANKS_PER_NODE: Final = 4
CLUSTER: Final = "demo"
JOB: Final = "llm-pretrain-7"
COMM: Final = "5a17c0de00b1a5ed"
_COMPUTE_NS: Final = 86 * MS
_REDUCE_NS: Final = 3_200 * US
_BYTES: Final = 256 << 20
_PAIRS: Final = 40  # of cudaFree and cudaMalloc in one burst


@dataclass(frozen=True, slots=True)
class Truth:
    """What is planted: the answer that the demo has to find."""

    culprit_rank: int = 5
    culprit_node: str = "gpu-node-2"
    late_ns: int = 290 * MS
    every: int = 14
    steps: int = 56
    offset_ns: int = 37 * MS
    lost: tuple[int, int] = (2, 20)

    def is_bad(self, step: int) -> bool:
        """True for the steps (from 1) in which the culprit is late."""
        return step % self.every == 0


@dataclass(slots=True)
class _Node:
    """One host: its clock, and the counter of its events."""

    name: str
    offset_ns: int
    seq: int = 0

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq


@dataclass(frozen=True, slots=True)
class _Turn:
    """One rank in one step: when it entered the all-reduce, when that ended, and what it did before."""

    rank: int
    step: int
    enter_ns: int
    done_ns: int
    work_ns: int
    extra_ns: int


class Story:
    """The story from `start_ns` on; the same seed tells the same story."""

    def __init__(self, start_ns: int, seed: int = 7) -> None:
        self.truth = Truth()
        self._start_ns = start_ns
        self._random = Random(seed)

    def resource(self, node: str) -> Resource:
        """Who sends, for one of the hosts."""
        return Resource(
            {
                semconv.CLUSTER_ID: CLUSTER,
                semconv.NODE_ID: node,
                semconv.JOB_ID: JOB,
                semconv.WORLD_SIZE: RANKS,
                semconv.SERVICE_NAME: "ingero-demo",
            }
        )

    def tell(self) -> Iterator[tuple[str, list[Span], list[Point]]]:
        """Step by step: the events of one host, as its daemon would send them."""
        nodes = [_Node("gpu-node-1", 0), _Node("gpu-node-2", self.truth.offset_ns)]
        now_ns = self._start_ns
        for node in nodes:
            yield node.name, [], [self._info(node)]
        for step in range(1, self.truth.steps + 1):
            turns = self._step(step, now_ns)
            for node, share in zip(nodes, (turns[:RANKS_PER_NODE], turns[RANKS_PER_NODE:]), strict=True):
                events = [event for turn in share for event in self._events(node, turn, now_ns)]
                spans = [event for event in events if isinstance(event, Span)]
                yield node.name, spans, [event for event in events if isinstance(event, Point)]
            now_ns = turns[0].done_ns + 700 * US

    def _info(self, node: _Node) -> Point:
        """What the host has, as its daemon says when it starts."""
        attributes: dict[str, AttributeValue] = {
            semconv.GPU_MODEL: "NVIDIA H100 80GB HBM3",
            semconv.GPU_COUNT: RANKS_PER_NODE,
            semconv.EVENT_SEQ: node.next_seq(),
        }
        return Point(semconv.NODE_INFO, self._start_ns + node.offset_ns, attributes)

    def _step(self, step: int, start_ns: int) -> list[_Turn]:
        late = self.truth.culprit_rank if self.truth.is_bad(step) else None
        work_ns = [int(self._random.gauss(_COMPUTE_NS, 1.2 * MS)) for _ in range(RANKS)]
        extra_ns = [int(self._random.gauss(self.truth.late_ns, 2 * MS)) if rank == late else 0 for rank in range(RANKS)]
        enter_ns = [start_ns + work + extra for work, extra in zip(work_ns, extra_ns, strict=True)]
        done_ns = max(enter_ns) + _REDUCE_NS
        return [
            _Turn(rank, step, enter_ns[rank], done_ns + self._random.randrange(40 * US), work_ns[rank], extra_ns[rank])
            for rank in range(RANKS)
        ]

    def _events(self, node: _Node, turn: _Turn, start_ns: int) -> Iterator[Span | Point]:
        if turn.extra_ns:
            for span in self._burst(turn, start_ns + 20 * MS):
                yield self._on_clock(node, span)
        reduce, wait = self._collective(turn)
        if (turn.rank, turn.step) == self.truth.lost:
            yield self._gap(node, reduce)
        else:
            yield self._on_clock(node, reduce)
        yield self._on_clock(node, wait)

    def _collective(self, turn: _Turn) -> tuple[Span, Span]:
        """The all-reduce (the host only enqueues it) and the synchronize in which the host waits for it."""
        seq = turn.step - 1
        blocked_ns = turn.work_ns // 20 + turn.extra_ns // 8
        runq_ns = self._random.randrange(50 * US, 400 * US)
        reduce: dict[str, AttributeValue] = {
            semconv.NCCL_OP_TYPE: "ncclAllReduce",
            semconv.NCCL_COMM: COMM,
            semconv.NCCL_SEQ: seq,
            semconv.NCCL_RANK: turn.rank,
            semconv.NCCL_NRANKS: RANKS,
            semconv.NCCL_COUNT: _BYTES // 2,
            semconv.NCCL_DATATYPE: "bfloat16",
            semconv.NCCL_BYTES: _BYTES,
            semconv.NCCL_REDUCE_OP: "sum",
            semconv.SEQ_ORIGIN: "init",
            semconv.TIMING_SOURCE: semconv.HOST_API,
            semconv.CPU_NS: turn.work_ns + turn.extra_ns - blocked_ns - runq_ns,
            semconv.BLOCKED_NS: blocked_ns,
            semconv.RUNQ_NS: runq_ns,
            semconv.SYNC_NS: turn.done_ns - turn.enter_ns,
        }
        waiting: dict[str, AttributeValue] = {semconv.TIMING_SOURCE: semconv.HOST_SYNC, semconv.CUDA_STREAM: 7}
        common = _common(turn)
        trace_id = blake2b(f"{JOB}/{COMM}/{seq}".encode(), digest_size=16).digest()
        return (
            Span("ncclAllReduce", turn.enter_ns, turn.enter_ns + 12 * US, common | reduce, trace_id),
            Span("cudaStreamSynchronize", turn.enter_ns + 30 * US, turn.done_ns, common | waiting),
        )

    def _burst(self, turn: _Turn, start_ns: int) -> Iterator[Span]:
        """cudaFree and cudaMalloc back to back, together as long as the rank is late."""
        now_ns = start_ns
        for number in range(2 * _PAIRS):
            name, share = ("cudaFree", 0.6) if number < _PAIRS else ("cudaMalloc", 0.4)
            length_ns = int(turn.extra_ns / _PAIRS * share)
            attributes: dict[str, AttributeValue] = {
                semconv.CUDA_BYTES: self._random.choice((2, 16, 64, 256)) << 20,
                semconv.CUDA_RETURN_CODE: 0,
                semconv.TIMING_SOURCE: semconv.HOST_SYNC,
            }
            yield Span(name, now_ns, now_ns + length_ns, _common(turn) | attributes)
            now_ns += length_ns

    def _on_clock(self, node: _Node, span: Span) -> Span:
        """The span as its node saw it: numbered, and on the node's own clock."""
        return replace(
            span,
            start_ns=span.start_ns + node.offset_ns,
            end_ns=span.end_ns + node.offset_ns,
            attributes={**span.attributes, semconv.EVENT_SEQ: node.next_seq()},
            trace_id=span.trace_id or self._random.randbytes(16),
            span_id=self._random.randbytes(8),
        )

    def _gap(self, node: _Node, lost: Span) -> Point:
        """In place of the lost event the daemon's note that it lost one."""
        node.next_seq()
        start_ns, end_ns = lost.start_ns + node.offset_ns, lost.end_ns + node.offset_ns
        attributes: dict[str, AttributeValue] = {
            semconv.LOST_EVENTS: 1,
            semconv.GAP_START_NS: start_ns,
            semconv.GAP_END_NS: end_ns,
            semconv.EVENT_SEQ: node.next_seq(),
        }
        return Point(semconv.PROBE_GAP, end_ns, attributes)


def _common(turn: _Turn) -> dict[str, AttributeValue]:
    return {
        semconv.RANK: turn.rank,
        semconv.LOCAL_RANK: turn.rank % RANKS_PER_NODE,
        semconv.STEP: turn.step,
        semconv.PID: 4100 + turn.rank,
        semconv.TID: 4100 + turn.rank,
        semconv.PROCESS: "python3",
        semconv.GPU_UUID: f"GPU-{turn.rank:08x}",
    }
