"""The part of `ingero mcp` that needs the MCP SDK and DuckDB: answering from a database file."""

from __future__ import annotations

import signal
from pathlib import Path

from ingero_mcp import mcp_server
from ingero_mcp.store import open_store


def serve(path: Path, tool_names: str) -> None:
    """Answer until stdin closes; StoreLocked if a server owns the file."""
    # Ctrl-C ends a reader at once; the SDK would first wait for another line of input.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open_store(path, read_only=True) as store:
        mcp_server.build(store, tool_names=tool_names, live=False).run("stdio")
