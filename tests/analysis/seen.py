"""Evidence for tests, from a few words: what every rank called, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from ingero_mcp.analysis.assemble import calls_of, column
from ingero_mcp.analysis.calls import Calls
from ingero_mcp.analysis.evidence import Communicator, Dump, Entry, Evidence, Place, Progress, Sends, Sign, Timing
from ingero_mcp.windows import Window

START_NS = 1_796_040_000_000_000_000
MS = 1_000_000
COMM = "5a17c0de00b1a5ed"


@dataclass(frozen=True)
class Seen:
    """One call of a rank. `ms` is when it entered, from the start; `took` is None where no end is known."""

    rank: int
    seq: int
    ms: float = 0.0
    took: float | None = 1.0
    op: str = "ncclAllReduce"
    comm: str = COMM
    bytes: int | None = 4096
    epoch: int = 0
    step: int | None = None


def table(seen: Iterable[Seen]) -> pa.Table:
    """The table of collectives that the analysis reads."""
    rows = list(seen)
    enter = [START_NS + round(one.ms * MS) for one in rows]
    ints: dict[str, list[Any]] = {
        "epoch": [one.epoch for one in rows],
        "coll_seq": [one.seq for one in rows],
        "rank": [one.rank for one in rows],
        "enter_ns": enter,
        "exit_ns": [
            None if one.took is None else at + round(one.took * MS) for one, at in zip(rows, enter, strict=True)
        ],
        "bytes": [one.bytes for one in rows],
        "step": [one.step for one in rows],
        "own_ns": [None] * len(rows),
        "sync_ns": [None] * len(rows),
        "event_seq": list(range(len(rows))),
    }
    names = {"comm_id": [one.comm for one in rows], "metric_name": [one.op for one in rows]}
    return pa.table(
        {name: pa.array(values, pa.int64()) for name, values in ints.items()}
        | {name: pa.array(values, pa.string()) for name, values in names.items()}
    )


def calls(seen: Iterable[Seen], *, kernel: bool = True) -> Calls:
    """The calls, each rank on a clock of its own."""
    read = table(seen)
    ranks = np.unique(column(read, "rank")).tolist()
    return calls_of(read, {rank: place for place, rank in enumerate(ranks)}, kernel=kernel)


def evidence(
    seen: Iterable[Seen] = (), *, timing: Timing = "kernel_gpu", quiet_ms: float = 0.0, **facts: Any
) -> Evidence:
    """The evidence of a job of which these calls were seen. The newest event is `quiet_ms` after the last of them."""
    rows = list(seen)
    made = calls(rows, kernel=timing == "kernel_gpu")
    ranks = sorted({one.rank for one in rows})
    comms = {one.comm for one in rows}
    members = {comm: tuple(sorted({one.rank for one in rows if one.comm == comm})) for comm in comms}
    last_ns = int(max(made.enter_ns.max(), made.done_ns.max())) if len(made) else START_NS
    given: dict[str, Any] = {
        "cluster_id": "c1",
        "job_id": "job",
        "window": Window(START_NS, START_NS + 10**12, "all"),
        "newest_ns": last_ns + round(quiet_ms * MS),
        "timing": timing,
        "world_size": len(ranks) or None,
        "calls": made,
        "event_seqs": column(table(rows), "event_seq"),
        "sends": Sends(calls([]), np.zeros(0, np.int64), np.zeros(0, np.int64)),
        "work": None,
        "places": {rank: Place(f"node-{rank}") for rank in ranks},
        "stages": {},
        "communicators": {comm: Communicator(comm, len(members[comm]), members[comm]) for comm in comms},
    }
    return Evidence(**(given | facts))


def rounds(ranks: Sequence[int], count: int, *, every_ms: float = 10.0, **facts: Any) -> list[Seen]:
    """`count` collectives of all the ranks, one every so many milliseconds."""
    return [Seen(rank, seq, seq * every_ms, **facts) for seq in range(count) for rank in ranks]


def without(seen: Iterable[Seen], rank: int, first: int) -> list[Seen]:
    """The same without what the rank called from a number on."""
    return [one for one in seen if one.rank != rank or one.seq < first]


def open_at(seen: Iterable[Seen], *places: tuple[int, int]) -> list[Seen]:
    """The same, those (rank, number) without an end."""
    return [replace(one, took=None) if (one.rank, one.seq) in places else one for one in seen]


def entry(rank: int, seq: int, state: str = "scheduled", **facts: Any) -> Entry:
    """An entry of a recorder."""
    usual: dict[str, Any] = {
        "comm_id": COMM,
        "op": "ncclAllReduce",
        "count": 1024,
        "datatype": "bfloat16",
        "enter_ns": START_NS + seq * 10 * MS,
        "event_id": f"n:{rank * 1000 + seq}",
    }
    return Entry(rank=rank, seq=seq, state=state, **(usual | facts))


def dumped(
    entries: Sequence[Entry],
    *,
    members: Sequence[int],
    empty: Sequence[int] = (),
    progress: Mapping[int, tuple[int, int]] | None = None,
    signs: Sequence[Sign] = (),
) -> Evidence:
    """The evidence of recorders' dumps: of every rank with an entry, and of those whose recorder is empty."""
    seen = sorted({one.rank for one in entries})
    still_open = {rank: sum(one.rank == rank and one.state != "completed" for one in entries) for rank in seen}
    dumps = [Dump(rank, sum(one.rank == rank for one in entries), still_open[rank], f"n:{rank}") for rank in seen]
    return evidence(
        timing="recorder",
        entries=tuple(entries),
        dumps=(*dumps, *(Dump(rank, 0, 0, f"n:{rank}") for rank in empty)),
        progress=tuple(Progress(rank, COMM, *numbers) for rank, numbers in (progress or {}).items()),
        communicators={COMM: Communicator(COMM, len(members), tuple(members), "0", "default_pg")},
        signs=tuple(signs),
        world_size=len(members),
    )
