"""A small story for the golden trace: two nodes, four ranks, one late, with everything a timeline shows.

`python -m tests.export.story` prints the trace, for tests/golden/perfetto/story.json when it is meant to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ingero_mcp.export.happenings import Clock, Clocks, Happening, Item, Marker, Reading
from ingero_mcp.export.perfetto import trace
from ingero_mcp.export.tracks import Place

START_NS = 1_796_000_000_123_456_789
MS = 1_000_000
AHEAD_NS = 37 * MS
"""How far the clock of node-2 is ahead of that of node-1."""
CLOCKS = Clocks({("lab", "node-1", None): Clock(0, 0), ("lab", "node-2", None): Clock(AHEAD_NS, 200_000)})
PLACES = [Place("lab", f"node-{1 + rank // 2}", "job", rank) for rank in range(4)]


def happening(rank: int, after_ns: int, length_ns: int | None, name: str, **columns: object) -> Happening:
    """Something that a rank did, so long after the beginning."""
    at_ns = START_NS + after_ns
    node = f"node-{1 + rank // 2}"
    given: dict[str, object] = {
        "cluster_id": "lab", "node_id": node, "job_id": "job", "rank": rank, "pid": 100 + rank, "tid": 100 + rank,
        "process": "python3", "event_seq": after_ns // 1000,
    }  # fmt: skip
    stamp_ns = at_ns + (AHEAD_NS if node == "node-2" else 0)
    return Happening(at_ns, stamp_ns, length_ns, metric_name=name, **(given | columns))  # type: ignore[arg-type]


def reduce(rank: int, seq: int, after_ns: int, end_ns: int, **columns: object) -> Happening:
    """A rank in an all-reduce of four, until it is over for all."""
    given: dict[str, object] = {
        "source": "nccl", "comm_id": "00000000000000c0", "coll_seq": seq, "nranks": 4, "bytes": 1 << 20, "step": seq,
        "timing_source": "kernel_gpu", "gpu_uuid": f"GPU-{rank}", "attrs_json": '{"cuda.stream":7}',
    }  # fmt: skip
    return happening(rank, after_ns, end_ns - after_ns, "ncclAllReduce", **(given | columns))


def items() -> Iterator[Item]:
    """What happens, in order."""
    told: list[Item] = [
        Reading(START_NS, "lab", "node-1", None, "memory of the host, %", {"value": 41.5}),
        Reading(START_NS + 1, "lab", "node-2", None, "clock, ms ahead of the reference", {"ahead": 37.0, "bound": 0.2}),
    ]
    for rank, enter_ns in enumerate((5 * MS, 6 * MS + 1, 5 * MS + 250_001, 5 * MS + 999_999)):
        told.append(reduce(rank, 0, enter_ns, 7 * MS))
    for rank, enter_ns in enumerate((15 * MS, 15 * MS + 7, 44 * MS + 13, 15 * MS + 21)):
        told.append(reduce(rank, 1, enter_ns, 46 * MS))
    told += [
        happening(2, 10 * MS, 30 * MS + 5, "python.gc", source="python", attrs_json='{"python.gc.generation":2}'),
        happening(2, 12 * MS, 3 * MS, "sched.offcpu", source="host", attrs_json='{"sched.next_comm":"\\"},{\\"ph\\""}'),
        happening(2, 20 * MS, 40 * MS, "block.io", source="io", bytes=1 << 53, status="error"),
        happening(1, 30 * MS, None, "process.exit", source="host"),
        happening(3, 31 * MS, None, "ingero.node.health_score", source="health", value_double=0.25),
        happening(3, 32 * MS, None, "gpu.memory.used", source="gpu", value_double=6.4e10, value_int=64_000_000_000,
                  gpu_uuid="GPU-3"),
        happening(3, 33 * MS, None, "gpu.clock.sm_mhz", source="gpu", value_double=float("nan"), gpu_uuid="GPU-3"),
        happening(0, 34 * MS, None, "probe.gap", source="probe",
                  attrs_json=json.dumps({"probe.lost_events": 3, "probe.gap.start_ns": START_NS + 8 * MS,
                                         "probe.gap.end_ns": START_NS + 9 * MS}))._replace(rank=None),
        Marker(START_NS + 46 * MS, "lab", "node-2", 2, "job", "HIGH", "rank 2 holds the job up",
               {"root_cause": "garbage collection", "p99_us": 30_000, "end_ns": None}),
        Marker(START_NS + 47 * MS, "lab", "node-1", None, None, "LOW", 'a "quoted" </script> line\n', {}),
    ]  # fmt: skip
    yield from sorted(told, key=lambda item: item.at_ns)


def text() -> str:
    return "".join(trace(items(), PLACES, CLOCKS, {"producer": "a test"}))


if __name__ == "__main__":
    print(text(), end="")
