"""The relations that SQL may read: `events` and the views over it. Public API, with documented columns.

The store creates them, the guard allows them and nothing else, docs/schema.md lists them.
"""

from typing import Final

from ingero_mcp.events import COLUMNS
from ingero_mcp.views.agent import (
    AGENT_ARG0,
    AGENT_ARG1,
    AGENT_CGROUP_ID,
    AGENT_GPU_ID,
    AGENT_ID,
    AGENT_OPS,
    AGENT_RET_CODE,
    AGENT_SOURCES,
    AGENT_VIEWS,
    COMPLETED,
    UNKNOWN_OP,
)
from ingero_mcp.views.clocks import CLOCKS
from ingero_mcp.views.collectives import (
    CALLS,
    CALLS_SQL,
    CLOCKED_CALLS,
    CLOCKED_CALLS_SQL,
    COLLECTIVE_CALLS,
    COLLECTIVES,
    POINT_TO_POINT,
)
from ingero_mcp.views.communicators import COMMUNICATORS
from ingero_mcp.views.cuda_calls import CUDA_CALLS
from ingero_mcp.views.gaps import GAPS
from ingero_mcp.views.health import HEALTH
from ingero_mcp.views.inventory import INVENTORY
from ingero_mcp.views.kind import Kind, Shown, view_of
from ingero_mcp.views.kinds import (
    AGGREGATE,
    AGGREGATE_5S,
    ANNOTATION,
    CGROUP,
    CGROUP_SCHEDSTAT,
    CHAIN,
    KINDS,
    PROCESS_NAME,
    SESSION,
    SNAPSHOT,
    STACK,
)
from ingero_mcp.views.offcpu import OFFCPU
from ingero_mcp.views.p2p import P2P, P2P_CALLS, P2P_CALLS_SQL
from ingero_mcp.views.view import PRIVATE, View

__all__ = [
    "AGENT_ARG0",
    "AGENT_ARG1",
    "AGENT_CGROUP_ID",
    "AGENT_GPU_ID",
    "AGENT_ID",
    "AGENT_OPS",
    "AGENT_RET_CODE",
    "AGENT_SOURCES",
    "AGGREGATE",
    "AGGREGATE_5S",
    "ANNOTATION",
    "CALLS",
    "CGROUP",
    "CGROUP_SCHEDSTAT",
    "CHAIN",
    "COMPLETED",
    "KINDS",
    "POINT_TO_POINT",
    "PRIVATE",
    "PRIVATE_VIEWS",
    "PROCESS_NAME",
    "SESSION",
    "SNAPSHOT",
    "STACK",
    "UNKNOWN_OP",
    "VIEWS",
    "Kind",
    "Shown",
    "View",
    "relations",
]

VIEWS: Final[tuple[View, ...]] = (
    *INVENTORY,
    COMMUNICATORS,
    COLLECTIVES,
    COLLECTIVE_CALLS,
    P2P,
    CUDA_CALLS,
    OFFCPU,
    HEALTH,
    GAPS,
    CLOCKS,
    *(view_of(kind) for kind in KINDS),
    *AGENT_VIEWS,
)

PRIVATE_VIEWS: Final[tuple[tuple[str, str], ...]] = (
    (CALLS, CALLS_SQL),
    (CLOCKED_CALLS, CLOCKED_CALLS_SQL),
    (P2P_CALLS, P2P_CALLS_SQL),
)
"""What several of the views share, by qualified name; made before them, and not public."""


def relations() -> dict[str, tuple[str, ...]]:
    """Every relation that SQL may read, with its columns in order."""
    public = {"events": tuple(column.name for column in COLUMNS)}
    return public | {view.name: tuple(name for name, _ in view.columns) for view in VIEWS}
