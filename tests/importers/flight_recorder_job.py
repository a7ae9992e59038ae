"""A small training job as PyTorch's Flight Recorder would dump it: one dictionary for every rank.

Ranks are counted tensor first, then data. A step is an all-gather in the tensor group, a send around the data group,
and a reduce-scatter and an all-reduce in it. All randomness comes from the seed.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingero_mcp.importers.imported import Import

START_NS = 1_780_000_000 * 10**9
MS = 10**6
Dump = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """`stopped` ranks complete nothing in the last step, `silent` ranks do not enter it."""

    dp: int = 2
    tp: int = 2
    steps: int = 3
    stopped: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    frames: bool = True
    seed: int = 0

    @property
    def world(self) -> list[int]:
        return list(range(self.dp * self.tp))

    def groups(self) -> dict[str, tuple[str, list[int]]]:
        """Name -> (description, ranks), over all ranks."""
        found = {"0": ("default_pg", self.world)}
        for row in range(self.dp):
            found[str(len(found))] = ("TENSOR_GROUP", [row * self.tp + column for column in range(self.tp)])
        for column in range(self.tp):
            found[str(len(found))] = ("DATA_GROUP", [row * self.tp + column for row in range(self.dp)])
        return found

    def dumps(self) -> dict[int, Dump]:
        """The dump of every rank."""
        dice = random.Random(self.seed)
        return {rank: _Recorder(self, rank, dice).run() for rank in self.world}


@dataclass
class _Recorder:
    job: Job
    rank: int
    dice: random.Random
    entries: list[dict[str, Any]] = field(default_factory=list)
    collectives: dict[str, int] = field(default_factory=dict)
    sends: dict[str, int] = field(default_factory=dict)

    def run(self) -> Dump:
        groups = {name: group for name, group in self.job.groups().items() if self.rank in group[1]}
        tensor, data = list(groups)[1:]
        for step in range(self.job.steps):
            last = step == self.job.steps - 1
            if last and self.rank in self.job.silent:
                break
            done = not (last and (self.job.stopped or self.job.silent))
            at_ns = START_NS + step * 100 * MS
            self.record(groups, tensor, "nccl:_all_gather_base", at_ns, done, [[256, 4]], [[256 * self.job.tp, 4]])
            place, size = groups[data][1].index(self.rank), self.job.dp
            self.record(groups, data, f"nccl:send {place}->{(place + 1) % size}", at_ns + 10 * MS, done, [[8]], [[8]])
            self.record(groups, data, f"nccl:recv {place}<-{(place - 1) % size}", at_ns + 11 * MS, done, [[8]], [[8]])
            self.record(groups, data, "nccl:_reduce_scatter_base", at_ns + 20 * MS, done, [[64 * size]], [[64]])
            self.record(groups, data, "nccl:all_reduce", at_ns + 30 * MS, done, [[64]], [[64]])
        return {
            "version": "2.9",
            "pg_config": {
                name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in groups.items()
            },
            "nccl_version": "2.27.3",
            "pg_status": {str(self.number(name)): self.status(name) for name in groups},
            "entries": self.entries,
        }

    def number(self, name: str) -> int:
        """A process counts only the groups that it is in."""
        return sum(self.rank in ranks for other, (_, ranks) in self.job.groups().items() if int(other) < int(name))

    def status(self, name: str) -> dict[str, int]:
        at = self.collectives.get(name, 0)
        return {
            "last_enqueued_collective": at or -1,
            "last_started_collective": -1,
            "last_completed_collective": at or -1,
        }

    def record(
        self,
        groups: Mapping[str, tuple[str, list[int]]],
        name: str,
        operation: str,
        at_ns: int,
        done: bool,
        inputs: list[list[int]],
        outputs: list[list[int]],
    ) -> None:
        is_p2p = operation.startswith(("nccl:send", "nccl:recv"))
        counter = self.sends if is_p2p else self.collectives
        counter[name] = counter.get(name, 0) + 1
        at_ns += self.dice.randrange(MS)
        entry = {
            "record_id": len(self.entries),
            "pg_id": self.number(name),
            "process_group": (name, groups[name][0]),
            "thread_name": "pt_main_thread",
            "thread_id": "140000000000000",
            "collective_seq_id": self.collectives.get(name, 0),
            "p2p_seq_id": self.sends.get(name, 0),
            "op_id": self.collectives.get(name, 0) + self.sends.get(name, 0),
            "profiling_name": operation,
            "time_created_ns": at_ns,
            "input_sizes": inputs,
            "input_dtypes": ["BFloat16"] * len(inputs),
            "output_sizes": outputs,
            "output_dtypes": ["BFloat16"] * len(outputs),
            "state": "completed" if done else "scheduled",
            "time_discovered_started_ns": at_ns + MS if done else None,
            "time_discovered_completed_ns": at_ns + 5 * MS if done else None,
            "retired": done,
            "timeout_ms": 600_000,
            "is_p2p": is_p2p,
        }
        if self.job.frames:
            entry["frames"] = [
                {"name": operation.partition(":")[2], "filename": "distributed_c10d.py", "line": 2696},
                {"name": "train_step", "filename": "train.py", "line": 41},
            ]
        self.entries.append(entry)


def entry(**changed: Any) -> dict[str, Any]:
    """An entry of a recorder of version 2.9, with some of its facts changed; those that are `...` are left out."""
    facts = {
        "record_id": 7,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_name": "python3",
        "collective_seq_id": 5,
        "p2p_seq_id": 0,
        "op_id": 5,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": START_NS,
        "input_sizes": [[1024]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[1024]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "time_discovered_started_ns": START_NS + MS,
        "time_discovered_completed_ns": START_NS + 5 * MS,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
    return {key: value for key, value in (facts | changed).items() if value is not ...}


def dump(*entries: Any, ranks: Any = "[0, 1, 2, 3]", **changed: Any) -> Dump:
    """A dump with one group, the default one; facts that are `...` are left out."""
    facts = {
        "version": "2.9",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "nccl_version": "2.27.3",
        "pg_status": {
            "0": {"last_enqueued_collective": 5, "last_started_collective": -1, "last_completed_collective": 4}
        },
        "entries": list(entries),
    }
    return {key: value for key, value in (facts | changed).items() if value is not ...}


def write_pickle(path: Path, value: Any, protocol: int = 2) -> Path:
    """Write a pickle, in the protocol that PyTorch uses unless another is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write JSON."""
    path.write_text(json.dumps(value))
    return path


def write_folder(folder: Path, dumps: Mapping[int, Dump], protocol: int = 2) -> list[Path]:
    """One pickle for every rank, `_dump_<rank>`."""
    return [write_pickle(folder / f"_dump_{rank}", value, protocol) for rank, value in dumps.items()]


def rows(read: Import) -> list[Row]:
    """The events of an import, without what is NULL, attributes beside the columns."""
    found = [row for batch in read.batches for row in batch.to_pylist()]
    return [
        {key: value for key, value in row.items() if value is not None and key != "attrs_json"}
        | json.loads(row["attrs_json"])
        for row in found
    ]


def calls(read: Import) -> list[Row]:
    """The rows of entries."""
    return [row for row in rows(read) if row.get("timing_source") == "recorder"]


def points(read: Import, name: str) -> list[Row]:
    """The points of this name."""
    return [row for row in rows(read) if row["metric_name"] == name]
