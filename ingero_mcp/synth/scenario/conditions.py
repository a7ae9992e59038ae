"""Under which conditions the events of a run were recorded: clocks, lost events, late and partial recording."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from ingero_mcp import semconv
from ingero_mcp.synth.scenario.block import OPEN, Block, Template, block, join
from ingero_mcp.synth.scenario.layout import Layout
from ingero_mcp.synth.scenario.run import Run

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


_OWN: Final = (semconv.CPU_NS, semconv.BLOCKED_NS, semconv.RUNQ_NS, semconv.SYNC_NS)


@dataclass(frozen=True, slots=True)
class Attach:
    """A rank that is recorded only from a step on (from 0). With `knows_comm` it can say on which communicator."""

    rank: int
    step: int
    knows_comm: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """`offset_ns` and `drift_ppm` per host: its clock is ahead by offset, and by drift more each second.

    `clock_step_at` (host, step, ns) sets one host's clock back or forth in mid run. `loss` is the share of lost events.
    Of collectives every `every`-th of a communicator is recorded.
    With `only` nothing of other ranks and of hosts is; with `enqueues_only` nothing but when calls were enqueued.
    """

    offset_ns: tuple[int, ...] = ()
    drift_ppm: tuple[float, ...] = ()
    clock_step: tuple[int, int, int] | None = None
    loss: float = 0.0
    attach: Attach | None = None
    every: int = 1
    only: tuple[int, ...] = ()
    enqueues_only: bool = False

    @property
    def traits(self) -> tuple[str, ...]:
        """Which of these are out of the ordinary."""
        found = {
            "offset": any(self.offset_ns),
            "drift": any(self.drift_ppm),
            "clock_step": self.clock_step is not None,
            "loss": self.loss > 0,
            "attach": self.attach is not None,
            "sampled": self.every > 1,
        }
        return tuple(name for name, is_so in found.items() if is_so)


def record(calls: Block, run: Run, conditions: Conditions, random: np.random.Generator) -> Block:
    """What is left of the events, in the order in which each host completed them; and the notes of what was lost."""
    if conditions.only:
        calls = calls.where(np.isin(calls.rank, conditions.only))
    if conditions.enqueues_only:
        calls = _enqueues(calls)
    if conditions.every > 1:
        calls = _sampled(calls, conditions.every)
    if conditions.attach is not None:
        calls = _attached(calls, run, conditions.attach)
    if conditions.loss:
        calls = _lossy(calls, run, conditions.loss, random)
    calls = _on_clocks(calls, run, conditions)
    return calls.where(np.lexsort((calls.host, calls.seen_ns)))


def numbers(recorded: Block) -> Int64s:
    """The number of each event on its host, in this order, from 1. What was lost in the kernel never had one."""
    seq = np.zeros(len(recorded), np.int64)
    for host in np.unique(recorded.host).tolist():
        here = recorded.host == host
        seq[here] = np.arange(1, here.sum() + 1)
    return seq


def _enqueues(calls: Block) -> Block:
    """Calls on communicators alone, without what the thread did before them."""
    on_comm = np.array([semconv.NCCL_COMM in template.attributes for template in calls.templates])
    calls = calls.where(on_comm[calls.template])
    columns = {key: column for key, column in calls.columns.items() if key not in _OWN}
    return replace(calls, columns=columns)


def _sampled(calls: Block, every: int) -> Block:
    seq = calls.columns[semconv.NCCL_SEQ]
    return calls.where((seq < 0) | (calls.trace < 0) | (seq % every == 0))


def _attached(calls: Block, run: Run, attach: Attach) -> Block:
    """Nothing of the rank before it was attached to; then its collectives are counted from 0."""
    since = run.base_ns[attach.step]
    own = calls.rank == attach.rank
    calls = calls.where(~own | (calls.start_ns >= since))
    own = calls.rank == attach.rank
    seq = calls.columns[semconv.NCCL_SEQ].copy()
    is_call = own & (seq >= 0)
    for positions in _channels(calls, is_call):
        seq[positions] -= seq[positions].min()
    changed = {
        index: _as_attached(template, attach, run.job.layout)
        for index, template in enumerate(calls.templates)
        if semconv.NCCL_SEQ in calls.columns and semconv.NCCL_COMM in template.attributes
    }
    templates = (*calls.templates, *changed.values())
    moved = {index: len(calls.templates) + place for place, index in enumerate(changed)}
    template = calls.template.copy()
    for index, new in moved.items():
        template[is_call & (calls.template == index)] = new
    columns = {**calls.columns, semconv.NCCL_SEQ: seq}
    trace = np.where(is_call, -1, calls.trace)
    return replace(calls, templates=templates, template=template, columns=columns, trace=trace)


def _channels(calls: Block, is_call: Bools) -> list[Int64s]:
    """Positions of the rank's calls that are counted together."""
    keys = [
        (
            template.attributes.get(semconv.NCCL_COMM),
            template.attributes.get(semconv.NCCL_PEER_RANK),
            template.name if semconv.NCCL_PEER_RANK in template.attributes else "",
        )
        for template in calls.templates
    ]
    found: dict[tuple[object, ...], list[int]] = {}
    for position in np.flatnonzero(is_call).tolist():
        found.setdefault(keys[calls.template[position]], []).append(position)
    return [np.array(positions) for positions in found.values()]


def _as_attached(template: Template, attach: Attach, layout: Layout) -> Template:
    attributes = {**template.attributes, semconv.SEQ_ORIGIN: "attach"}
    if not attach.knows_comm:
        # An id of its own, which joins with nobody; neither size nor place are known.
        text = f"{layout.job_id}/{attach.rank}/{attributes[semconv.NCCL_COMM]!r}"
        attributes[semconv.NCCL_COMM] = blake2b(text.encode(), digest_size=8).hexdigest()
        attributes.pop(semconv.NCCL_RANK, None)
        attributes.pop(semconv.NCCL_NRANKS, None)
    return replace(template, attributes=attributes)


def _lossy(calls: Block, run: Run, loss: float, random: np.random.Generator) -> Block:
    """Events go missing in bursts, as they do when a buffer is full; each host notes how many and when."""
    kept = np.ones(len(calls), bool)
    notes = []
    first, last = int(run.base_ns[0]), int(calls.seen_ns.max())
    bursts = 4
    note = Template("point", semconv.PROBE_GAP, {"probe.lost.reason": "ring_full"})
    for host in range(len(run.job.layout.hosts)):
        length = int((last - first) * min(3 * loss, 0.5) / bursts)
        for start in random.integers(first, last - length, bursts).tolist():
            here = (calls.host == host) & (calls.seen_ns >= start) & (calls.seen_ns < start + length)
            gone = here & (random.random(len(calls)) < 0.33) & kept
            kept &= ~gone
            if gone.any():
                columns = {
                    semconv.LOST_EVENTS: int(gone.sum()), semconv.GAP_START_NS: start,
                    semconv.GAP_END_NS: start + length,
                }  # fmt: skip
                notes.append(block(note, -1, host, np.array([start + length]), columns=columns))
    return join([calls.where(kept), *notes])


def _on_clocks(calls: Block, run: Run, conditions: Conditions) -> Block:
    hosts = len(run.job.layout.hosts)
    offset = np.array(conditions.offset_ns or (0,) * hosts, np.int64)[calls.host]
    drift = np.array(conditions.drift_ppm or (0.0,) * hosts)[calls.host]
    began = int(run.base_ns[0])

    def ahead(times: Int64s) -> Int64s:
        moved: Int64s = offset + ((times - began) * drift * 1e-6).astype(np.int64)
        if conditions.clock_step is not None:
            host, step, by = conditions.clock_step
            moved = moved + np.where((calls.host == host) & (times >= run.base_ns[step]), by, 0)
        return moved

    # A length is measured by a clock that does not jump: a span is moved as a whole.
    moved = ahead(calls.start_ns)
    columns = dict(calls.columns)
    for key in (semconv.GAP_START_NS, semconv.GAP_END_NS, semconv.CALL_START_NS, semconv.CALL_LAST_SEEN_NS):
        if key in columns:
            columns[key] = np.where(columns[key] >= 0, columns[key] + moved, columns[key])
    end = np.where(calls.end_ns == OPEN, OPEN, calls.end_ns + moved)
    return replace(calls, start_ns=calls.start_ns + moved, end_ns=end, columns=columns)
