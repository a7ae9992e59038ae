"""What different instruments see of the same run: the calls of every rank as blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ingero_mcp import semconv
from ingero_mcp.synth.scenario.block import ABSENT, OPEN, Block, Template, block
from ingero_mcp.synth.scenario.layout import Layout
from ingero_mcp.synth.scenario.numbering import Numbered, number
from ingero_mcp.synth.scenario.run import Run
from ingero_mcp.synth.scenario.templates import Templates
from ingero_mcp.synth.scenario.timeline import Op, happens
from ingero_mcp.synth.scenario.truth import View

Int64s = npt.NDArray[np.int64]

OPEN_NS: Final = 10_000_000_000
"""How often the probe tells of an open call."""
_WINDOWS: Final = (semconv.CPU_NS, semconv.BLOCKED_NS, semconv.RUNQ_NS, semconv.SYNC_NS)


class Sight:
    """One view of a run, in true times."""

    def __init__(self, run: Run, view: View) -> None:
        self._run = run
        self._layout: Layout = run.job.layout
        self._view = view
        steps = run.last_step + 1
        self._base = run.base_ns[:steps, None]
        self._steps = np.arange(steps)[:, None]
        self._templates = Templates(run.job.layout, view)
        self._step_column = {semconv.STEP: self._steps + run.job.first_step} if run.job.has_steps(view) else {}

    def blocks(self) -> list[Block]:
        """The calls of all ranks, and what else the view records in every step."""
        ops = self._run.ops
        calls = [self._call(numbered) for numbered in number(ops, self._layout)]
        if self._view == "probe":
            return calls + [self._sync(op) for op in ops if op.kind == "sync"]
        if self._view == "optrace":
            return calls + [self._compute(op) for op in ops if op.kind == "compute"]
        return calls

    def open_calls(self, until_ns: int) -> list[Block]:
        """What a probe says every ten seconds of the calls that do not return, until `until_ns` (true time)."""
        if self._view != "probe":
            return []
        last = self._run.last_step
        found = []
        for op in self._run.ops:
            if op.kind == "sync":
                is_open = happens(op.enter[last]) & ~happens(op.leave[last])
                for rank, enter in zip(op.ranks[is_open].tolist(), op.enter[last][is_open].tolist(), strict=True):
                    found.append(self._open_call(rank, enter + int(self._base[-1, 0]), until_ns))
        return found

    def _call(self, numbered: Numbered) -> Block:
        op, of_host = numbered.op, self._view == "probe"
        start, end = (op.enter, op.leave) if of_host else (op.begin, op.done)
        size = len(op.ranks)
        ended = [self._templates.call(numbered, place) for place in range(size)]
        unfinished = [self._templates.call(numbered, place, unfinished=True) for place in range(size)]
        index = np.arange(size)[None] + ~happens(self._cut(end)) * size
        other = self._mismatched(numbered, index)
        columns = self._step_column | {semconv.NCCL_SEQ: self._steps * numbered.per_step + numbered.place}
        if of_host and op.windows is not None:
            # The first collective of a thread has nothing before it to count from.
            has_window = (self._steps > 0) | (not op.is_first)
            windows = zip(_WINDOWS, op.windows, strict=True)
            columns |= {key: np.where(has_window, self._cut(part), ABSENT) for key, part in windows}
        trace = np.broadcast_to(numbered.comm, index.shape) if op.kind == "collective" else ABSENT
        return self._block(([*ended, *unfinished, *other], index), op, (start, end), columns, trace)

    def _mismatched(self, numbered: Numbered, index: Int64s) -> list[Template]:
        """What the ranks of a mismatch call in its place: in the last step, another operation or another size."""
        stop, op = self._run.plan.stop, numbered.op
        if stop is None or op is not self._run.mismatched:
            return []
        is_smaller = bool(stop.step % 2) and op.bytes > 8
        changed = replace(op, bytes=op.bytes // 2) if is_smaller else replace(op, name="ncclBroadcast")
        places = np.flatnonzero(np.isin(op.ranks, stop.ranks))
        index[-1, places] = 2 * len(op.ranks) + np.arange(len(places))
        unfinished = self._view != "probe"
        return [
            self._templates.call(replace(numbered, op=changed), place, unfinished=unfinished)
            for place in places.tolist()
        ]

    def _sync(self, op: Op) -> Block:
        made = self._block(self._templates.sync(), op, (op.enter, op.leave), self._step_column)
        # A call that has not returned is told of by a point, see `open_calls`, and sent when it ends.
        return made.where(made.end_ns != OPEN)

    def _compute(self, op: Op) -> Block:
        templates = [self._templates.compute(op, rank) for rank in op.ranks.tolist()]
        index = np.broadcast_to(np.arange(len(op.ranks)), (len(self._steps), len(op.ranks)))
        made = self._block((templates, index), op, (op.begin, op.done), self._step_column)
        return made.where(made.end_ns != OPEN)

    def _open_call(self, rank: int, start_ns: int, until_ns: int) -> Block:
        seen = np.arange(start_ns + OPEN_NS, until_ns + 1, OPEN_NS)
        columns = {semconv.CALL_START_NS: np.full(len(seen), start_ns), semconv.CALL_LAST_SEEN_NS: seen}
        if self._step_column:
            columns[semconv.STEP] = np.full(len(seen), self._run.last_step + self._run.job.first_step)
        return block(self._templates.open_sync(rank), rank, self._layout.host_of(rank), seen, columns=columns)

    def _block(
        self,
        template: Template | tuple[list[Template], Int64s],
        op: Op,
        times: tuple[Int64s, Int64s],
        columns: dict[str, Int64s],
        trace: Int64s | int = ABSENT,
    ) -> Block:
        start, end = (self._cut(part) for part in times)
        hosts = np.array([self._layout.host_of(rank) for rank in op.ranks.tolist()])
        happened = happens(start)
        end = np.where(happens(end), end + self._base, OPEN)
        made = block(template, op.ranks, hosts, start + self._base, end, columns=columns, trace=trace)
        return made if happened.all() else made.where(happened.reshape(-1))

    def _cut(self, part: Int64s) -> Int64s:
        return part[: self._run.last_step + 1]
