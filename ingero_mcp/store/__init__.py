"""Events in DuckDB: one file, one owner, one writer, guarded reads."""

from ingero_mcp.store.store import Store, open_store

__all__ = ["Store", "open_store"]
