"""What the nodes knew besides their events: every row once. Of a call stack the copy with most names is kept."""

from __future__ import annotations

from typing import Final

from ingero_mcp import views
from ingero_mcp.store.merging.scratch import COLUMNS, CONTENT, CONTEXT, Scratch
from ingero_mcp.store.schema import CONTEXT as CONTEXT_ROWS

_FRAMES: Final = f"""TRY_CAST(json_extract(attrs_json, '$."{views.STACK.key("frames")}"') AS VARCHAR[])"""
_NAMED: Final = f"coalesce(len(list_filter({_FRAMES}, lambda frame: NOT starts_with(frame, '0x'))), 0)"


def write(scratch: Scratch) -> None:
    """Write all but the chains into the new database.

    A stack is known by its id, which is a hash of it: copies differ in how much of it could be given names.
    """
    content = ", ".join(CONTENT)
    best = f"{_NAMED} DESC, coalesce(len({_FRAMES}), 0) DESC, node_id, attrs_json"
    scratch.connection.execute(
        f"""
        INSERT INTO {CONTEXT_ROWS}
        WITH found AS (
            SELECT {content}, min(event_seq) AS event_seq FROM {CONTEXT}
            WHERE metric_name IS DISTINCT FROM '{views.CHAIN.metric_name}' GROUP BY {content}
        ),
        is_stack AS (SELECT *, metric_name = '{views.STACK.metric_name}' AND stack_id IS NOT NULL AS stack FROM found)
        SELECT {", ".join(COLUMNS)} FROM is_stack
        QUALIFY stack IS NOT TRUE OR row_number() OVER (PARTITION BY stack, cluster_id, stack_id ORDER BY {best}) = 1
        ORDER BY ALL
        """
    )
