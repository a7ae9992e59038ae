"""What a timeline shows: events, causal chains and readings, in the order of a clock that all hosts share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ingero_mcp.semconv import UNKNOWN


class Happening(NamedTuple):
    """One event. `at_ns` is its start on the common clock, `timestamp_ns` as recorded; the rest is as in `events`.

    A tuple and no dataclass: there are millions, and one is made for each.
    """

    at_ns: int
    timestamp_ns: int
    duration_ns: int | None = None
    cluster_id: str | None = None
    node_id: str | None = None
    job_id: str | None = None
    event_seq: int | None = None
    source: str | None = None
    metric_name: str | None = None
    value_double: float | None = None
    value_int: int | None = None
    rank: int | None = None
    nranks: int | None = None
    gpu_uuid: str | None = None
    pid: int | None = None
    tid: int | None = None
    process: str | None = None
    comm_id: str | None = None
    coll_seq: int | None = None
    step: int | None = None
    bytes: int | None = None
    cpu_ns: int | None = None
    blocked_ns: int | None = None
    runq_ns: int | None = None
    sync_ns: int | None = None
    timing_source: str | None = None
    status: str | None = None
    causal_chain_id: str | None = None
    stack_id: str | None = None
    attrs_json: str | None = None


COLUMNS: Final = Happening._fields[1:]
"""The columns of `events` that a timeline needs, in order."""


@dataclass(frozen=True, slots=True)
class Marker:
    """A causal chain: `at_ns` is when it began or was detected, on the common clock; `facts` is what else it says."""

    at_ns: int
    cluster_id: str | None
    node_id: str | None
    rank: int | None
    job_id: str | None
    severity: str | None
    summary: str | None
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of one counter of a node at a time on the common clock; those that are None were not recorded."""

    at_ns: int
    cluster_id: str | None
    node_id: str | None
    rank: int | None
    name: str
    values: Mapping[str, float | int | None]


Item = Happening | Marker | Reading


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a clock was ahead of the common one, and within what that is right; None: nobody can say."""

    offset_ns: int
    bound_ns: int | None


ClockName = tuple[str, str, int | None]
"""Cluster, node, and the rank where nodes are not known."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks that were compared with each other. A node that is not among them has a clock nobody compared."""

    known: Mapping[ClockName, Clock] = field(default_factory=dict)

    def of(self, cluster_id: str | None, node_id: str | None, rank: int | None) -> Clock | None:
        """The clock by which an event is stamped."""
        return self.known.get(clock_name(cluster_id, node_id, rank))


def clock_name(cluster_id: str | None, node_id: str | None, rank: int | None) -> ClockName:
    """Whose clock stamps the events of a rank on a node."""
    node = UNKNOWN if node_id is None else node_id
    return (UNKNOWN if cluster_id is None else cluster_id, node, rank if node == UNKNOWN else None)
