"""SQL text to a query that may be run, or the reasons why not. Pure: no store, no file, no network.

This is the only door: `check` for text that somebody wrote, `literal` for values in text that we write.
"""

from ingero_mcp.sqlguard.checked import CheckedQuery, check
from ingero_mcp.sqlguard.text import literal

__all__ = ["CheckedQuery", "check", "literal"]
