"""What tests of explain_stall share: a small job as events, a question, and what holds for every answer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import jsonschema

from ingero_mcp.batches import batch
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store
from ingero_mcp.synth.scenario import Case
from ingero_mcp.tools import TOOLS
from ingero_mcp.tools.answer import MAX_BYTES, Finished, finish
from ingero_mcp.tools.arguments import schema_of, take
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import TOOL
from ingero_mcp.tools.scope import as_sql

NOON = 1_796_040_000_000_000_000
MS = 1_000_000
MAX_TEXT = 2000
SCHEMA = schema_of(TOOL.table)
Row = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """A job whose ranks compute and meet in one all-reduce per step, timed on the GPU.

    `late_ms` says how much later than its peers a rank enters from step `since` on; `stops` (rank, step) does not enter
    that step, and nobody gets out of it. `clock_ms` is how far the clock of a rank's host is ahead.
    """

    ranks: tuple[int, ...] = (0, 1, 2, 3)
    steps: int = 30
    late_ms: Mapping[int, float] = field(default_factory=dict)
    since: int = 10
    stops: tuple[int, int] | None = None
    clock_ms: Mapping[int, float] = field(default_factory=dict)
    cluster: str | None = "c1"
    job: str | None = "job"
    node: str = "node"
    comm: str = "5a17c0de00b1a5ed"
    start_ms: float = 0.0
    seed: int = 1

    def rows(self) -> list[Row]:
        """The events, one all-reduce of one rank each."""
        dice = random.Random(self.seed)
        found: list[Row] = []
        for step in range(self.steps):
            stuck = self.stops is not None and self.stops[1] == step
            enter = {
                rank: self.start_ms
                + step * 200
                + 100
                + dice.uniform(0, 2)
                + (self.late_ms.get(rank, 0.0) if step >= self.since else 0.0)
                for rank in self.ranks
            }
            end = max(enter.values()) + 3
            for rank, at in enter.items():
                if stuck and self.stops is not None and self.stops[0] == rank:
                    continue
                found.append(self.row(rank, step, at, None if stuck else end - at))
            if stuck:
                break
        return found

    def row(self, rank: int, step: int, at_ms: float, took_ms: float | None) -> Row:
        """One call."""
        return {
            "cluster_id": self.cluster,
            "node_id": f"{self.node}-{rank}",
            "job_id": self.job,
            "event_seq": step + 1,
            "timestamp_ns": NOON + round((at_ms + self.clock_ms.get(rank, 0.0)) * MS),
            "duration_ns": None if took_ms is None else round(took_ms * MS),
            "source": "nccl",
            "metric_name": "ncclAllReduce",
            "rank": rank,
            "nranks": len(self.ranks),
            "world_size": len(self.ranks),
            "comm_id": self.comm,
            "coll_seq": step,
            "step": step,
            "bytes": 4096,
            "timing_source": "kernel_gpu",
            "pid": 4000 + rank,
        }


def put(store: Store, rows: Iterable[Row]) -> None:
    """Store the events as they are."""
    given = list(rows)
    names = dict.fromkeys(name for row in given for name in row)
    store.append(batch({name: [row.get(name) for row in given] for name in names}, len(given))).result(timeout=30)


def put_case(store: Store, case: Case) -> None:
    """Store a generated case."""
    for waiting in [store.append(made) for made in case.batches()]:
        waiting.result(timeout=30)


def ask(store: Store, **arguments: Any) -> dict[str, Any]:
    """The structured answer, after what holds for every answer has been checked."""
    call = Call(store, None)
    given = TOOL.arguments(**take(arguments, schema_of(TOOL.arguments), TOOL.example))
    said = finish(TOOL.answer(call, given), TOOL.table)
    check_answer(store, said, with_plot=bool(arguments.get("include_plot")))
    return said.structured | {"text": said.text}


def check_answer(store: Store, said: Finished, *, with_plot: bool = False) -> None:
    """Strict JSON of the declared shape, exact integers, a short text of safe lines, events that exist, calls that
    can be made."""
    wire = json.loads(json.dumps(said.structured), parse_constant=_not_json)
    jsonschema.validate(wire, SCHEMA)
    assert said.size <= MAX_BYTES
    assert all(-(2**53) < number < 2**53 for number in _integers(wire))
    assert said.text.startswith(f"verdict: {wire['verdict']}, cause: {wire['cause']}")
    assert with_plot or len(said.text.encode()) < MAX_TEXT
    assert all(line.isprintable() for line in said.text.split("\n"))
    assert len(wire["timeline"]) <= 20
    assert all("\n" not in line for line in wire["timeline"])
    assert 0 <= wire["confidence"] <= 1
    assert not {culprit["rank"] for culprit in wire["culprits"]} & set(wire["waiting_ranks"])
    for event_id in {event for fact in wire["evidence"] for event in fact["event_ids"]}:
        node, _, number = event_id.rpartition(":")
        query = f"SELECT 1 FROM events WHERE node_id = {as_sql(node)} AND event_seq = {int(number)}"
        assert store.query(check(query), limit=1).rows, event_id
    for literal in wire["next_calls"]:
        follow(store, literal)


def follow(store: Store, literal: str) -> Finished:
    """Make a literal next call."""
    name, _, arguments = literal.partition(" ")
    (tool,) = [tool for tool in TOOLS if tool.name == name]
    given = tool.arguments(**take(json.loads(arguments), schema_of(tool.arguments), tool.example))
    return finish(tool.answer(Call(store, None), given), tool.table)


def ranks(said: Mapping[str, Any]) -> list[int]:
    """Who is at fault."""
    return [culprit["rank"] for culprit in said["culprits"]]


def _integers(value: Any) -> Iterable[int]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _integers(item)
    elif isinstance(value, list):
        for item in value:
            yield from _integers(item)
    elif isinstance(value, int):
        yield value


def _not_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")
