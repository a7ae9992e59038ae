"""What is known about a clock: how far it was from another one, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeClock:
    """One reading of a clock: `at_ns` on it is `at_ns - offset_ns` on the clock of `reference`.

    `rank` is None where the clock is the node's; where nodes are not known (node_id is "unknown") each rank has its own
    clock. The offset is right within `bound_ns` either way; None: nobody can say. `method` names how it was found
    ("collectives", "fan-out", ...).
    """

    cluster_id: str
    node_id: str
    rank: int | None
    at_ns: int
    offset_ns: int
    bound_ns: int | None
    method: str
    reference: str
