"""The MCP tools, one module each. `TOOLS` is the list; a tool is in it only when it works."""

from __future__ import annotations

from typing import Final

from ingero_mcp.tools import event_history, explain_stall, find_outlier_nodes, get_cost, query_fleet, run_analysis
from ingero_mcp.tools.tool import FleetTool

TOOLS: Final[tuple[FleetTool, ...]] = (
    explain_stall.TOOL,
    find_outlier_nodes.TOOL,
    event_history.TOOL,
    query_fleet.TOOL,
    run_analysis.TOOL,
    get_cost.TOOL,
)
