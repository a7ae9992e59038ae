"""A small pipeline-parallel training job, simulated and written down as an op trace.

Every stage runs all forward micro-batches and then all backward ones; a receive waits for its send, collectives for
their last rank. All randomness comes from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TYPES = {
    "dp_rank": pa.int8(),
    "stage": pa.int8(),
    "rank": pa.int16(),
    "step": pa.int64(),
    "optype": pa.string(),
    "start_ts": pa.float32(),
    "duration": pa.float32(),
    "seq_id": pa.int32(),
    "mc": pa.int8(),
    "mb_id": pa.int8(),
    "gmc": pa.int16(),
}
TRANSFER_S = 0.0005


@dataclass(frozen=True)
class Job:
    """`slow` is (dp_rank, stage, factor): that worker computes `factor` times as long."""

    dp: int = 2
    pp: int = 2
    tp: int = 1
    steps: int = 2
    micro_batches: int = 2
    slow: tuple[int, int, float] | None = None
    seed: int = 0

    @property
    def workers(self) -> list[tuple[int, int]]:
        return [(dp_rank, stage) for stage in range(self.pp) for dp_rank in range(self.dp)]

    def rank(self, dp_rank: int, stage: int) -> int:
        return (stage * self.dp + dp_rank) * self.tp

    def meta(self) -> dict[str, object]:
        return {
            "trial_name": "look-alike",
            "run_id": 7,
            "dp_size": self.dp,
            "dsp_size": 1,
            "pp_size": self.pp,
            "tp_size": self.tp,
            "vpp_size": 1,
            "world_size": self.dp * self.pp * self.tp,
        }

    def table(self) -> pa.Table:
        """The trace, with steps numbered 10, 13, 16, ... as a sampling recorder leaves them."""
        dice = random.Random(self.seed)
        rows = [row for step in range(self.steps) for row in _Step(self, dice, 10 + 3 * step).run()]
        return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in TYPES.items()})


@dataclass
class _Step:
    """One training step: the clock of every worker, and the rows so far."""

    job: Job
    dice: random.Random
    number: int
    clock: dict[tuple[int, int], float] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> list[dict[str, Any]]:
        self.clock = {worker: self.dice.uniform(0.0, 0.002) for worker in self.job.workers}
        for stage in range(self.job.pp):
            self.collective("params-all-gather", [(dp, stage) for dp in range(self.job.dp)], 0.01, mc=0)
        for dp_rank in range(self.job.dp):
            self.pipeline(dp_rank, "forward", list(range(self.job.pp)), 0.010)
            self.pipeline(dp_rank, "backward", list(reversed(range(self.job.pp))), 0.020)
        for worker in self.job.workers:
            self.row("gc", worker, self.clock[worker], 0.0, mb=0)
            self.collective("layernorm-grads-all-reduce", [worker], 0.0001)
        for dp_rank in range(self.job.dp):
            ends = sorted({0, self.job.pp - 1})
            self.collective("embedding-grads-all-reduce", [(dp_rank, stage) for stage in ends], 0.002)
        for stage in range(self.job.pp):
            self.collective("grads-reduce-scatter", [(dp, stage) for dp in range(self.job.dp)], 0.01, mc=0)
        self.collective("optimizer-clip-main-grad", self.job.workers, 0.001)
        for worker in self.job.workers:
            self.collective("optimizer", [worker], 0.003)
        return self.rows

    def pipeline(self, dp_rank: int, direction: str, stages: list[int], seconds: float) -> None:
        for micro_batch in range(self.job.micro_batches):
            for before, stage in zip([None, *stages], stages, strict=False):
                worker = (dp_rank, stage)
                if before is not None:
                    self.transfer(direction, (dp_rank, before), worker, micro_batch)
                duration = seconds * self.dice.gauss(1.0, 0.01) * self.factor(worker)
                self.row(f"{direction}-compute", worker, self.clock[worker], duration, micro_batch, 0, micro_batch)
                self.clock[worker] += duration

    def transfer(self, direction: str, source: tuple[int, int], target: tuple[int, int], seq: int) -> None:
        # The sender goes on at once, so that a send never waits for the next receive: its row is the copy alone.
        entered = self.clock[target]
        sent = max(self.clock[source], entered)
        self.row(f"{direction}-send", source, sent, TRANSFER_S, seq)
        self.row(f"{direction}-recv", target, entered, sent - entered + TRANSFER_S, seq)
        self.clock[target] = sent + TRANSFER_S

    def collective(self, name: str, workers: list[tuple[int, int]], seconds: float, mc: int = -1) -> None:
        end = max(self.clock[worker] for worker in workers) + seconds
        for worker in workers:
            self.row(name, worker, self.clock[worker], end - self.clock[worker], mc=mc)
            self.clock[worker] = end

    def factor(self, worker: tuple[int, int]) -> float:
        slow = self.job.slow
        return slow[2] if slow is not None and slow[:2] == worker else 1.0

    def row(
        self, name: str, worker: tuple[int, int], start: float, seconds: float, seq: int = 0, mc: int = -1, mb: int = -1
    ) -> None:
        dp_rank, stage = worker
        self.rows.append(
            {
                "dp_rank": dp_rank,
                "stage": stage,
                "rank": self.job.rank(dp_rank, stage),
                "step": self.number,
                "optype": name,
                "start_ts": start,
                "duration": seconds,
                "seq_id": seq,
                "mc": mc,
                "mb_id": mb,
                "gmc": stage if name.endswith("compute") else -1,
            }
        )


def write(folder: Path, table: pa.Table, meta: Mapping[str, object] | str | None, **parquet: Any) -> Path:
    """Write trace-job.parquet and, unless it is None, meta-job.yaml; returns the path of the trace."""
    path = folder / "trace-job.parquet"
    pq.write_table(table, path, **parquet)
    if meta is not None:
        text = meta if isinstance(meta, str) else "".join(f"{key}: {value}\n" for key, value in meta.items())
        (folder / "meta-job.yaml").write_text(text)
    return path


def with_column(table: pa.Table, name: str, values: Iterable[object], kind: pa.DataType | None = None) -> pa.Table:
    """`table` with one column replaced, by default keeping its type."""
    index = table.schema.get_field_index(name)
    return table.set_column(index, name, pa.array(list(values), kind or table.schema.field(name).type))
