"""What the nodes knew besides their events: every row once. Of a call stack the copy with most names is kept."""

from __future__ import annotations

from typing import Final

from ingero_mcp import views
from ingero_mcp.store.merging.scratch import COLUMNS, CONTENT, CONTEXT, Scratch
from ingero_mcp.store.merging.stacks import FRAMES, MERGED_ID, STACK_NAMES
from ingero_mcp.store.schema import CONTEXT as CONTEXT_ROWS

_LISTED: Final = f"TRY_CAST({FRAMES} AS VARCHAR[])"
_NAMED: Final = f"coalesce(len(list_filter({_LISTED}, lambda frame: NOT starts_with(frame, '0x'))), 0)"
_PLAIN: Final = tuple(name for name in CONTENT if name not in ("stack_id", "attrs_json"))
_MARK: Final = f"'{{\"{MERGED_ID}\":'"


def _marked(attributes: str) -> str:
    """SQL: attributes without the id that a stack had, or with the one that it has lost now."""
    bare = f"replace({attributes}, {_MARK} || to_json(names.base) || ',', '{{')"
    return (
        f"CASE WHEN names.base IS NULL THEN {attributes} WHEN names.base = names.new THEN {bare} "
        f"ELSE {_MARK} || to_json(names.base) || ',' || substr({bare}, 2) END"
    )


def write(scratch: Scratch) -> None:
    """Write all but the chains into the new database. Call it when the stacks have their ids."""
    content = ", ".join(CONTENT)
    best = f"{_NAMED} DESC, coalesce(len({_LISTED}), 0) DESC, node_id, attrs_json"
    scratch.connection.execute(
        f"""
        INSERT INTO {CONTEXT_ROWS}
        WITH named AS (
            SELECT {", ".join(_PLAIN)}, event_seq, coalesce(names.new, stack_id) AS stack_id,
                   {_marked("attrs_json")} AS attrs_json
            FROM {CONTEXT} AS rows LEFT JOIN {STACK_NAMES} AS names
                ON rows.metric_name = '{views.STACK.metric_name}' AND names.part = rows.part
                AND names.cluster IS NOT DISTINCT FROM rows.cluster_id AND names.old = rows.stack_id
                AND names.frames = {FRAMES.replace("attrs_json", "rows.attrs_json")}
            WHERE metric_name IS DISTINCT FROM '{views.CHAIN.metric_name}'
        ),
        found AS (SELECT {content}, min(event_seq) AS event_seq FROM named GROUP BY {content}),
        is_stack AS (SELECT *, metric_name = '{views.STACK.metric_name}' AND stack_id IS NOT NULL AS stack FROM found)
        SELECT {", ".join(COLUMNS)} FROM is_stack
        QUALIFY stack IS NOT TRUE OR row_number() OVER (PARTITION BY stack, cluster_id, stack_id ORDER BY {best}) = 1
        ORDER BY ALL
        """
    )
