"""A notice: what the watch tells about a stall of a job when it begins, changes and ends, and what it keeps of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from ingero_mcp import views
from ingero_mcp.batches import batch
from ingero_mcp.cells import structured
from ingero_mcp.windows import iso

STALL: Final = "stall"
"""The `kind` of chains that a watch keeps."""

What: TypeAlias = Literal["opened", "changed", "closed"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact with its number, and events that show it."""

    statement: str
    value: float | None
    unit: str
    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What it costs in a day if it goes on; the price is None where that of the GPUs is not known."""

    gpu_hours_per_day: float
    usd_per_day_low: float | None = None
    usd_per_day_high: float | None = None


@dataclass(frozen=True, slots=True)
class GroupAtFault:
    """Ranks that are at fault as a whole: of a stage, on a host, at the ends of a link."""

    kind: str
    id: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """A stall as it stood at `updated_ns` (the server's clock); the other times are on the clocks of the nodes.

    `id` is the same from the beginning to the end; `end_ns` is None while it goes on. The window is the time that it
    was judged by.
    """

    what: What
    id: str
    cluster_id: str | None
    job_id: str | None
    verdict: str
    cause: str
    confidence: float
    severity: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    groups: tuple[GroupAtFault, ...]
    start_ns: int
    last_bad_ns: int
    detected_ns: int
    updated_ns: int
    window_start_ns: int
    window_end_ns: int
    end_ns: int | None = None
    summary: tuple[str, ...] = ()
    timeline: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    cost: Cost | None = None

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self.end_ns is None

    @property
    def window(self) -> str:
        """The time it was judged by, as tools take it."""
        return f"{iso(self.window_start_ns)}/{iso(self.window_end_ns)}"

    @property
    def at_fault(self) -> str:
        """Who is at fault, in a few words: `rank 5 on gpu-node-2`, `stage 3`."""
        if self.ranks:
            ranks = ", ".join(map(str, self.ranks[:8])) + (f" and {len(self.ranks) - 8} more" if self.ranks[8:] else "")
            place = f" on {self.nodes[0]}" if len(self.nodes) == 1 else ""
            return f"rank{'s' if len(self.ranks) > 1 else ''} {ranks}{place}"
        return ", ".join(f"{group.kind} {group.id}" for group in self.groups) or "nobody in particular"


def as_json(notice: Notice) -> dict[str, Any]:
    """The notice as plain JSON: times in ISO 8601, nanoseconds as decimal strings."""
    return {
        "id": notice.id,
        "state": "open" if notice.is_open else "closed",
        "what": notice.what,
        "cluster_id": notice.cluster_id,
        "job_id": notice.job_id,
        "verdict": notice.verdict,
        "cause": notice.cause,
        "confidence": structured(notice.confidence),
        "severity": notice.severity,
        "at_fault": notice.at_fault,
        "ranks": list(notice.ranks),
        "nodes": list(notice.nodes),
        "groups": [asdict(group) for group in notice.groups],
        "start": iso(notice.start_ns),
        "last_bad": iso(notice.last_bad_ns),
        "detected": iso(notice.detected_ns),
        "updated": iso(notice.updated_ns),
        "updated_ns": str(notice.updated_ns),
        "end": None if notice.end_ns is None else iso(notice.end_ns),
        "window": notice.window,
        "summary": " ".join(notice.summary),
        "timeline": list(notice.timeline),
        "evidence": [asdict(fact) | {"value": structured(fact.value)} for fact in notice.facts],
        "cost": None if notice.cost is None else asdict(notice.cost),
    }


def batch_of(notice: Notice) -> pa.RecordBatch:
    """The notice as a row of context, which `chains` shows; it stands beside those written of the same id before."""
    facts = {
        "kind": STALL,
        "detected_ns": str(notice.detected_ns),
        "updated_ns": str(notice.updated_ns),
        "end_ns": None if notice.end_ns is None else str(notice.end_ns),
        "last_bad_ns": str(notice.last_bad_ns),
        "window_start_ns": str(notice.window_start_ns),
        "window_end_ns": str(notice.window_end_ns),
        "severity": notice.severity,
        "verdict": notice.verdict,
        "cause": notice.cause,
        "confidence": notice.confidence,
        "ranks": list(notice.ranks),
        "nodes": list(notice.nodes),
        "groups": [asdict(group) for group in notice.groups],
        "summary": notice.summary[0] if notice.summary else notice.verdict,
        "root_cause": f"{notice.cause}: {notice.at_fault}",
        "explanation": " ".join(notice.summary),
        "recommendations": list(notice.summary[-1:]),
        "timeline": [{"layer": "HOST", "detail": line} for line in notice.timeline],
        "evidence": [asdict(fact) for fact in notice.facts],
        "cost": None if notice.cost is None else asdict(notice.cost),
    }
    columns = {
        "cluster_id": notice.cluster_id,
        "node_id": notice.nodes[0] if notice.nodes else None,
        "job_id": notice.job_id,
        "rank": notice.ranks[0] if notice.ranks else None,
        "timestamp_ns": notice.start_ns,
        "source": "chain",
        "metric_name": views.CHAIN.metric_name,
        "causal_chain_id": notice.id,
        "attrs_json": views.CHAIN.attributes(facts),
    }
    return batch(columns, 1)


COLUMNS: Final = (
    "chain_id", "cluster_id", "job_id", "verdict", "cause", "confidence", "severity", "ranks", "nodes", "groups",
    "start_ns", "last_bad_ns", "detected_ns", "updated_ns", "window_start_ns", "window_end_ns", "end_ns", "explanation",
    "timeline", "evidence", "cost",
)  # fmt: skip
"""The columns of `chains` that `of_row` reads, in order."""


def of_row(row: Mapping[str, Any]) -> Notice | None:
    """The notice that was kept in a row of `chains`; None if the row is not one that a watch wrote."""
    try:
        cost = json.loads(row["cost"]) if row["cost"] else None
        end_ns = row["end_ns"]
        return Notice(
            what="closed" if end_ns is not None else "opened" if row["updated_ns"] == row["detected_ns"] else "changed",
            id=str(row["chain_id"]),
            cluster_id=row["cluster_id"],
            job_id=row["job_id"],
            verdict=str(row["verdict"]),
            cause=str(row["cause"]),
            confidence=float(row["confidence"]),
            severity=str(row["severity"]),
            ranks=tuple(int(rank) for rank in json.loads(row["ranks"])),
            nodes=tuple(str(node) for node in json.loads(row["nodes"])),
            groups=tuple(
                GroupAtFault(str(group["kind"]), str(group["id"]), tuple(map(int, group["ranks"])))
                for group in json.loads(row["groups"])
            ),
            **{name: int(row[name]) for name in COLUMNS if name.endswith("_ns") and name != "end_ns"},
            end_ns=None if end_ns is None else int(end_ns),
            summary=(str(row["explanation"] or ""),),
            timeline=tuple(str(line["detail"]) for line in json.loads(row["timeline"])),
            facts=tuple(
                Fact(str(fact["statement"]), fact["value"], str(fact["unit"]), tuple(map(str, fact["event_ids"])))
                for fact in json.loads(row["evidence"])
            ),
            cost=None if cost is None else Cost(**cost),
        )
    except (KeyError, TypeError, ValueError):
        # A file may hold rows of that kind that somebody else made.
        return None
