"""A node that sends what our probe sees: launches of a process, and a backup that takes its CPU now and then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ingero_mcp.store import Store
from tests.tools.explained import MS, NOON, put

Row = dict[str, Any]
HOUR = 3600.0
LAUNCH = "cudaLaunchKernel"


def second(after_noon: float) -> int:
    """Unix ns."""
    return NOON + round(after_noon * 1000) * MS


def row(name: str, at_s: float, took_ms: float | None, **values: Any) -> Row:
    """One event of process 100 on node n1."""
    attrs = values.pop("attrs", {})
    return {
        "cluster_id": "c1",
        "node_id": "n1",
        "job_id": "job",
        "timestamp_ns": second(at_s),
        "duration_ns": None if took_ms is None else round(took_ms * MS),
        "source": "cuda",
        "metric_name": name,
        "pid": 100,
        "tid": 100,
        "process": "python3",
        "timing_source": "host_api",
        "attrs_json": json.dumps(attrs),
    } | values


def off_cpu(at_s: float, took_ms: float, state: str = "runqueue", by: str = "backup") -> Row:
    """A time off the CPU."""
    attrs = {"sched.state": state} | ({"sched.next_comm": by, "sched.next_pid": 9} if by else {})
    return row("sched.offcpu", at_s, took_ms, source="host", timing_source=None, attrs=attrs)


def launches(begin_s: float, end_s: float, took_ms: float = 0.01) -> Iterator[Row]:
    """Twenty launches a second."""
    for place in range(round((end_s - begin_s) * 20)):
        yield row(LAUNCH, begin_s + place / 20, took_ms)


def incident(begin_s: float) -> Iterator[Row]:
    """A minute of launches; from its 20th second on four seconds in which each takes 20 ms, 18 of them off the CPU."""
    yield from launches(begin_s, begin_s + 20)
    for one in launches(begin_s + 20, begin_s + 24, took_ms=20):
        yield one
        yield row("sched.offcpu", 0, 18, source="host", timing_source=None,
                  attrs={"sched.state": "runqueue", "sched.next_comm": "backup", "sched.next_pid": 9},
                  ) | {"timestamp_ns": one["timestamp_ns"] + MS}  # fmt: skip
    yield from launches(begin_s + 24, begin_s + 60)


def store_rows(store: Store, rows: Iterator[Row] | list[Row]) -> None:
    """Store them, numbered in order of time."""
    ordered = sorted(rows, key=lambda one: one["timestamp_ns"])
    put(store, [{"event_seq": place} | one for place, one in enumerate(ordered, start=1)])
