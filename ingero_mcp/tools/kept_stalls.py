"""The stalls that a watch has kept: what it told last about each."""

from __future__ import annotations

from typing import Any, Final

from ingero_mcp import notice
from ingero_mcp.notice import Notice
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.scope import equal

MOST: Final = 1000


def kept_stalls(
    call: Call,
    *,
    after_ns: int | None = None,
    only_open: bool = False,
    cluster_id: str | None = None,
    job_id: str | None = None,
    most: int = MOST,
) -> list[Notice]:
    """The stalls as they stand, the latest told first; with `after_ns` those told later than that, the oldest first."""
    terms = [f"kind = '{notice.STALL}'", "updated_ns IS NOT NULL"]
    terms += ["end_ns IS NULL"] if only_open else []
    terms += [f"updated_ns > {after_ns}"] if after_ns is not None else []
    terms += [equal("cluster_id", cluster_id)] if cluster_id is not None else []
    terms += [equal("job_id", job_id)] if job_id is not None else []
    order = "updated_ns" if after_ns is not None else "updated_ns DESC"
    columns = ", ".join(notice.COLUMNS)
    rows = call.read(
        f"SELECT {columns} FROM chains WHERE {' AND '.join(terms)} ORDER BY {order}, chain_id LIMIT {most}", most
    ).rows
    read: list[dict[str, Any]] = [dict(zip(notice.COLUMNS, row, strict=True)) for row in rows]
    return [known for row in read if (known := notice.of_row(row)) is not None]


def latest_stall(call: Call, cluster_id: str | None, job_id: str | None) -> Notice | None:
    """The stall that goes on, the one told of last; if none does, the one that ended last."""
    found = kept_stalls(call, only_open=True, cluster_id=cluster_id, job_id=job_id, most=1)
    found = found or kept_stalls(call, cluster_id=cluster_id, job_id=job_id, most=1)
    return found[0] if found else None
