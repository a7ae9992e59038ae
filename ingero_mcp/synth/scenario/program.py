"""What all ranks do in a step, carried out on the timeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from ingero_mcp.synth.scenario.durations import Durations, Jitter
from ingero_mcp.synth.scenario.job import Job
from ingero_mcp.synth.scenario.layout import Kind
from ingero_mcp.synth.scenario.plan import Plan
from ingero_mcp.synth.scenario.schedule import interleave
from ingero_mcp.synth.scenario.timeline import NEVER, Op, Timeline

Int64s = npt.NDArray[np.int64]

_AXES: Final[dict[Kind, tuple[int, ...]]] = {"world": (1, 2, 3), "dp": (2,), "tp": (3,), "embedding": (1, 2)}
_ALL: Final = slice(None)


@dataclass(slots=True, eq=False)
class Program:
    """The step of all ranks; `run` carries it out on `timeline`, `end_ns` is then when each step was over."""

    job: Job
    durations: Durations
    plan: Plan
    jitter: Jitter
    timeline: Timeline = field(init=False)
    end_ns: Int64s = field(init=False)
    mismatched: Op | None = None
    _calls: int = 0
    _stopped: bool = False
    _sent: dict[tuple[str, int, int], tuple[Op, Int64s]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        start = np.zeros_like(self.durations.exit_ns)
        start[1:] = (self.durations.exit_ns + self.durations.wake_ns)[:-1]
        self.timeline = Timeline(start)

    def run(self) -> None:
        """Carry it out, once."""
        self._begin()
        stages, micro_batches = self.job.layout.pp, self.job.micro_batches
        for stage, (direction, number) in interleave(self.job.schedule, stages, micro_batches):
            if direction == "forward":
                self._forward(stage, number)
            else:
                self._backward(stage, number)
        self._finish()
        self.timeline.carry_over()

    def _begin(self) -> None:
        plan, shape = self.plan, self.durations.exit_ns.shape
        stop = plan.stop
        if stop is not None and stop.kind == "exit":
            self.timeline.stop_hosts(stop.step, np.array(stop.ranks))
            self._stopped = True
        self.timeline.work(
            self.durations.data_cpu_ns + plan.cpu_ns.reshape(shape),
            self.durations.data_blocked_ns + plan.blocked_ns.reshape(shape),
            plan.runq_ns.reshape(shape),
        )

    def _forward(self, stage: int, number: int) -> None:
        at = slice(stage, stage + 1)
        if stage > 0:
            self._receive("forward", stage - 1, stage, number)
        self._compute("forward", 0.31 / self.job.micro_batches, at, number)
        self._tensor_parallel(at, "forward", number)
        if stage < self.job.layout.pp - 1:
            self._send("forward", stage, stage + 1, number)

    def _backward(self, stage: int, number: int) -> None:
        job, at = self.job, slice(stage, stage + 1)
        if stage < job.layout.pp - 1:
            self._receive("backward", stage + 1, stage, number)
        is_last = number == job.micro_batches - 1
        # With one stage the gradients of the last micro batch go out bucket by bucket, while the rest is computed.
        parts = job.buckets if is_last and job.layout.pp == 1 else 1
        for part in range(parts):
            self._compute("backward", 0.63 / job.micro_batches / parts, at, number)
            if part == 0:
                self._tensor_parallel(at, "backward", number)
            if is_last and job.layout.pp == 1:
                self._gradients(at, job.bytes // parts, 1 / parts)
        if stage > 0:
            self._send("backward", stage, stage - 1, number)
        elif job.sync == "micro" and job.layout.pp == 1 and not is_last:
            self._synchronize(at)

    def _finish(self) -> None:
        layout = self.job.layout
        if layout.pp > 1:
            if layout.embedding:
                self._collective("embedding", "ncclAllReduce", slice(0, None, layout.pp - 1), self.job.bytes // 8)
                self.timeline.join(slice(0, None, layout.pp - 1))
            for stage in range(layout.pp):
                at = slice(stage, stage + 1)
                self._collective("dp", "ncclReduceScatter", at, self.job.bytes)
                self._compute("optimizer", 0.06, at, -1)
                self._collective("dp", "ncclAllGather", at, self.job.bytes // layout.dp)
        else:
            self.timeline.join(_ALL)
            self._compute("optimizer", 0.06, _ALL, -1)
        self.timeline.join(_ALL)
        self._collective("world", "ncclAllReduce", _ALL, 8, spread=self.durations.exit_ns)
        self.end_ns = np.array([0])
        last = self.timeline.ops[-1]
        self.end_ns = (last.done - self._flat(self.durations.exit_ns))[:, 0]
        self._synchronize(_ALL, self.durations.wake_ns)

    def _gradients(self, at: slice, size: int, share: float) -> None:
        """A bucket of gradients, over the data parallel group: the world where there is no other parallelism."""
        kind: Kind = "dp" if self.job.layout.tp > 1 else "world"
        self._collective(kind, "ncclAllReduce", at, size, share=share, transfer_of="dp")

    def _tensor_parallel(self, at: slice, direction: str, number: int) -> None:
        if self.job.layout.tp > 1:
            self._collective("tp", "ncclAllReduce", at, self.job.bytes // 64, micro_batch=number)
            self.timeline.join(at)

    def _compute(self, name: str, share: float, at: slice, micro_batch: int) -> None:
        durations, plan = self.durations, self.plan
        shape = durations.gpu_ns.shape
        factor = plan.gpu_factor.reshape(shape)[:, at] * self.jitter.op(durations.gpu_ns[:, at].shape)
        work = (durations.gpu_ns[:, at] * share * factor).astype(np.int64)
        cpu = (durations.launch_ns[:, at] * share).astype(np.int64)
        runq = (plan.launch_runq_ns.reshape(shape)[:, at] * share).astype(np.int64)
        self.timeline.compute(name, at, (cpu, runq), work, micro_batch)

    def _collective(
        self,
        kind: Kind,
        name: str,
        at: slice,
        size: int,
        *,
        share: float = 1.0,
        micro_batch: int = -1,
        transfer_of: str = "",
        spread: Int64s | None = None,
    ) -> None:
        axes = _AXES[kind]
        shape = self.timeline.host[:, at].shape
        groups = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
        transfer = (self.jitter.transfer(transfer_of or kind, groups) * share).astype(np.int64)
        transfer = self._slowed(kind, at, transfer, shape)
        exits = self.jitter.exits(shape)
        api = self.jitter.api(shape)
        op = _new_op("collective", name, kind, size, micro_batch)
        self._stop_before(op, at, transfer)
        self.timeline.collective(op, at, axes, api, transfer, exits if spread is None else spread)

    def _slowed(self, kind: Kind, at: slice, transfer: Int64s, shape: tuple[int, ...]) -> Int64s:
        is_slow = self.plan.is_slow
        if is_slow is None:
            return transfer
        layout = self.job.layout
        comm_of = layout.comm_of[kind].reshape(layout.shape)[at]
        slow = np.array([is_slow(layout, comm) for comm in layout.comms])[comm_of]
        factor = np.where(slow[None], self.plan.transfer_factor.reshape(-1, 1, 1, 1), 1.0)
        # One value per group: the same for all its members, so that of its first one.
        of_group = factor[tuple(slice(0, 1) if size == 1 else _ALL for size in transfer.shape)]
        result: Int64s = (transfer * of_group).astype(np.int64)
        assert len(result.shape) == len(shape)
        return result

    def _stop_before(self, op: Op, at: slice, transfer: Int64s) -> None:
        """Let the planted stop happen in this collective or just before it, if it is time for it."""
        stop = self.plan.stop
        if stop is None or self._stopped:
            return
        layout = self.job.layout
        here = np.arange(layout.world).reshape(layout.shape)[at].reshape(-1)
        if not set(stop.ranks) <= set(here.tolist()):
            return
        self._calls += 1
        if self._calls <= stop.after:
            return
        ranks, steps = np.array(stop.ranks), len(self.timeline.host)
        match stop.kind:
            case "host":
                self.timeline.stop_hosts(stop.step, ranks)
            case "gpu":
                self.timeline.gpu.reshape(steps, -1)[stop.step, ranks] = NEVER
            case "mismatch":
                self._never_ends(op, at, transfer)
        self._stopped = True

    def _never_ends(self, op: Op, at: slice, transfer: Int64s) -> None:
        """The ranks of the stop call something else, and the group never comes together."""
        stop, layout = self.plan.stop, self.job.layout
        assert stop is not None
        comms = layout.comm_of[op.group]  # type: ignore[index]
        broken = np.isin(comms.reshape(layout.shape)[at], comms[list(stop.ranks)])
        of_group = broken[tuple(slice(0, 1) if size == 1 else _ALL for size in transfer.shape[1:])]
        transfer[stop.step] = np.where(of_group, NEVER, transfer[stop.step])
        self.mismatched = op

    def _send(self, direction: str, source: int, target: int, number: int) -> None:
        at = slice(source, source + 1)
        op = _new_op("send", "ncclSend", "pp", self.job.bytes // 32, number)
        begin = self.timeline.post(op, at, self.jitter.api(self.timeline.host[:, at].shape))
        op.group = f"pp/{direction}"
        self._sent[direction, target, number] = (op, begin)

    def _receive(self, direction: str, source: int, target: int, number: int) -> None:
        at = slice(target, target + 1)
        timeline = self.timeline
        op = _new_op("recv", "ncclRecv", "pp", self.job.bytes // 32, number)
        op.group = f"pp/{direction}"
        shape = timeline.host[:, at].shape
        begin = timeline.post(op, at, self.jitter.api(shape))
        sent, sent_begin = self._sent.pop((direction, target, number))
        done = np.maximum(begin, sent_begin) + self._slowed("pp", at, self.jitter.transfer("pp", shape), shape)
        op.done = self._flat(done)
        sent.done = self._flat(done + self.jitter.exits(shape) // 8)
        timeline.gpu[:, at] = done
        if self.job.sync == "micro":
            self._synchronize(at)

    def _synchronize(self, at: slice, wake: Int64s | None = None) -> None:
        shape = self.timeline.host[:, at].shape
        api, drawn = self.jitter.api(shape), self.jitter.wake(shape)
        self.timeline.synchronize(at, api, drawn if wake is None else wake)

    def _flat(self, part: Int64s) -> Int64s:
        return np.array(part).reshape(len(part), -1)


def _new_op(kind: str, name: str, group: str, size: int, micro_batch: int) -> Op:
    none = np.zeros((1, 0), np.int64)
    return Op(kind, name, none[0], none, none, none, none, group, size, micro_batch)  # type: ignore[arg-type]
