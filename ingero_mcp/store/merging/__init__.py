"""Several files become one database: every event once, under a number of its own, with what refers to it."""

from ingero_mcp.store.merging.merge import Merged, Part, merge

__all__ = ["Merged", "Part", "merge"]
