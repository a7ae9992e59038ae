"""A training job on clocks that are wrong in a known way: calls as the analysis reads them, and the truth about clocks.

Each step, micro-batches pass forward and backward through the stages of every replica, gradients are reduced within
each stage, and at last all ranks meet once. All randomness comes from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ingero_mcp.analysis.calls import Calls, Floats, Int64s

BEGIN_NS = 1_790_000_000_000_000_000
OPS = ("ncclAllReduce", "ncclSend", "ncclRecv", "ncclBroadcast")
TRANSFER_S = 0.001
Row: TypeAlias = tuple[int, int, int, int, float, float]  # event, communicator, op, rank, entry, end


@dataclass(frozen=True, kw_only=True)
class Job:
    """Times in seconds. `spread_s` is how far ends of one event are apart; half of it is the same in each event."""

    seed: int = 0
    dp: int = 4
    pp: int = 2
    ranks_per_clock: int = 1
    steps: int = 1
    step_s: float = 2.0
    micro_batches: int = 4
    meets: bool = True
    transfer_s: float = 0.02
    spread_s: float = 100e-6
    offset_s: float = 0.05
    drift: float = 0.0
    late_rank: int = -1
    late_s: float = 0.3

    @property
    def ranks(self) -> int:
        return self.dp * self.pp

    @property
    def clocks(self) -> int:
        return self.ranks // self.ranks_per_clock

    def run(self) -> Observed:
        return _Run(self).observed()


@dataclass(frozen=True)
class Observed:
    """Calls as the clocks stamped them, and as they truly were.

    `offset_ns` and `rate` are those of each clock: at the true time t it shows t + offset + rate * (t - BEGIN_NS).
    """

    calls: Calls
    sends: Calls
    true_calls: Calls
    true_sends: Calls
    offset_ns: Floats
    rate: Floats

    def shown(self, clock: int, true_ns: Int64s) -> Int64s:
        """What a clock shows at true times, jumps aside."""
        return _shown(self, np.full(len(true_ns), clock), true_ns)

    def stepped(self, clock: int, at_s: float, jump_s: float) -> Observed:
        """The same with a clock that jumps."""

        def jumped(shown: Int64s, true: Int64s, own: Calls) -> Int64s:
            is_after = (own.clock == clock) & (true >= BEGIN_NS + round(at_s * 1e9))
            return np.where(is_after, shown + round(jump_s * 1e9), shown)

        return self._changed(
            lambda calls, true: replace(
                calls,
                enter_ns=jumped(calls.enter_ns, true.enter_ns, true),
                done_ns=jumped(calls.done_ns, true.done_ns, true),
            )
        )

    def late(self, clock: int, begin_s: float, end_s: float, by_s: Callable[[int], Floats]) -> Observed:
        """The same, but one clock learns too late that calls ended, for a while; `by_s` says how late so many are."""

        def delayed(calls: Calls, true: Calls) -> Calls:
            since_s = (true.done_ns - BEGIN_NS) / 1e9
            is_late = (calls.clock == clock) & (since_s >= begin_s) & (since_s < end_s)
            by_ns = np.rint(by_s(len(calls)) * 1e9).astype(np.int64)
            return replace(calls, done_ns=calls.done_ns + np.where(is_late, by_ns, 0))

        return self._changed(delayed)

    def eager(self) -> Observed:
        """The same, but who sends is done at once, whenever the other receives."""

        def early(calls: Calls, true: Calls) -> Calls:
            ahead_ns = true.done_ns - true.enter_ns - 50_000
            is_send = np.array([op == "ncclSend" for op in calls.ops])[calls.op]
            return replace(calls, done_ns=np.where(is_send, calls.done_ns - ahead_ns, calls.done_ns))

        return self._changed(early)

    def lossy(self, kept: float, seed: int) -> Observed:
        """The same, but of all calls only so many were seen."""
        dice = np.random.default_rng(seed)
        return self._changed(lambda calls, _: calls.where(dice.random(len(calls)) < kept))

    def _changed(self, change: Callable[[Calls, Calls], Calls]) -> Observed:
        return replace(self, calls=change(self.calls, self.true_calls), sends=change(self.sends, self.true_sends))


@dataclass
class _Run:
    job: Job
    dice: np.random.Generator = field(init=False)
    now: Floats = field(init=False)  # seconds since the beginning, one per rank
    bias: Floats = field(init=False)
    rows: list[Row] = field(default_factory=list)
    transfers: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = np.random.default_rng(self.job.seed)
        self.now = self.dice.uniform(0.0, 0.01, self.job.ranks)
        # Where a rank sits in the ring decides when it is done, in every collective alike.
        self.bias = self.dice.uniform(0.0, self.job.spread_s / 2, self.job.ranks)

    def observed(self) -> Observed:
        job = self.job
        for step in range(job.steps):
            self.now += self.dice.uniform(0.0, 0.01, job.ranks)
            if job.late_rank >= 0:
                self.now[job.late_rank] += job.late_s
            self.pipeline()
            for stage in range(job.pp):
                self.meet(1 + stage, [stage * job.dp + replica for replica in range(job.dp)])
            if job.meets:
                self.meet(0, list(range(job.ranks)))
            self.now = np.maximum(self.now, (step + 1) * job.step_s)
        calls, sends = _calls(self.rows, job), _calls(self.transfers, job)
        offset = self.dice.normal(0.0, job.offset_s * 1e9, job.clocks)
        rate = self.dice.uniform(-job.drift / 2, job.drift / 2, job.clocks)
        observed = Observed(calls, sends, calls, sends, offset, rate)
        return observed._changed(
            lambda calls, _: replace(
                calls,
                enter_ns=_shown(observed, calls.clock, calls.enter_ns),
                done_ns=_shown(observed, calls.clock, calls.done_ns),
            )
        )

    def pipeline(self) -> None:
        job = self.job
        compute_s = job.step_s / (6 * job.micro_batches)
        for stages in (range(job.pp), range(job.pp - 1, -1, -1)):
            for _ in range(job.micro_batches):
                for replica in range(job.dp):
                    for before, stage in zip([-1, *stages], stages, strict=False):
                        rank = stage * job.dp + replica
                        if before >= 0:
                            self.transfer(before * job.dp + replica, rank)
                        self.now[rank] += compute_s * self.dice.uniform(0.95, 1.05)

    def transfer(self, source: int, target: int) -> None:
        number = len(self.transfers)
        both = [source, target]
        entered = self.now[both]
        end = entered.max() + TRANSFER_S + self.dice.uniform(0.0, self.job.spread_s, 2)
        comm = 1 + self.job.pp
        self.transfers += [(number, comm, 1, source, entered[0], end[0]), (number, comm, 2, target, entered[1], end[1])]
        self.now[both] = end

    def meet(self, comm: int, ranks: list[int]) -> None:
        number = len(self.rows)
        entered = self.now[ranks]
        noise = self.dice.uniform(0.0, self.job.spread_s / 2, len(ranks))
        end = entered.max() + self.job.transfer_s * self.dice.uniform(0.9, 1.1) + self.bias[ranks] + noise
        self.rows += [(number, comm, 0, rank, entered[place], end[place]) for place, rank in enumerate(ranks)]
        self.now[ranks] = end


def _shown(observed: Observed, clock: Int64s, true_ns: Int64s) -> Int64s:
    shift = observed.offset_ns[clock] + observed.rate[clock] * (true_ns - BEGIN_NS)
    return true_ns + np.rint(shift).astype(np.int64)


def _calls(rows: list[Row], job: Job) -> Calls:
    table = np.array(rows, np.float64).reshape(-1, 6)
    number, comm, op, rank = (table[:, column].astype(np.int64) for column in range(4))
    enter, done = (BEGIN_NS + np.rint(table[:, column] * 1e9).astype(np.int64) for column in (4, 5))
    unknown = np.full(len(table), -1)
    return Calls(
        collective=number,
        comm=comm,
        seq=number,
        op=op,
        rank=rank,
        clock=rank // job.ranks_per_clock,
        step=unknown,
        enter_ns=enter,
        done_ns=done,
        wait_ns=unknown,
        own_ns=unknown,
        sync_ns=unknown,
        bytes=unknown,
        row=np.arange(len(table)),
        comm_ids=("world", *(f"stage {stage}" for stage in range(job.pp)), "pipeline"),
        ops=OPS,
    )
