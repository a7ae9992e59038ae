"""Which jobs a window holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.scope import equal
from ingero_mcp.windows import Window

MAX_JOBS: Final = 8
MAX_RANK: Final = (1 << 20) - 1
RANKED: Final = f"rank BETWEEN 0 AND {MAX_RANK}"
"""The condition on events that they say their rank; a number that can be none says nothing."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job in a window; `events` counts what of it an analysis can use."""

    cluster_id: str | None
    job_id: str | None
    events: int

    @property
    def in_cluster(self) -> str:
        """The condition that events are of its cluster, whatever job they belong to, as SQL."""
        return "cluster_id IS NULL" if self.cluster_id is None else equal("cluster_id", self.cluster_id)

    def where(self, window: Window | None) -> str:
        """The condition on events as SQL."""
        terms = [self.in_cluster, "job_id IS NULL" if self.job_id is None else equal("job_id", self.job_id)]
        if window is not None:
            terms.append(f"timestamp_ns >= {window.start_ns} AND timestamp_ns < {window.end_ns}")
        return " AND ".join(terms)


def jobs(
    call: Call,
    window: Window,
    cluster_id: str | None = None,
    job_id: str | None = None,
    comm_id: str | None = None,
    most: int = MAX_JOBS,
) -> list[Job]:
    """The jobs with something to analyse, the ones with most events first, at most `most`."""
    chosen = "".join(
        f" AND {equal(name, value)}"
        for name, value in (("cluster_id", cluster_id), ("job_id", job_id), ("comm_id", comm_id))
        if value is not None
    )
    rows = call.read(
        "SELECT cluster_id, job_id, count(*) AS usable FROM events "
        f"WHERE timestamp_ns >= {window.start_ns} AND timestamp_ns < {window.end_ns}{chosen} AND ((source = 'nccl' "
        f"AND (comm_id IS NOT NULL OR metric_name = '{semconv.RECORDER_DUMP}')) OR metric_name IN "
        f"('{semconv.COMPUTE}', '{semconv.HANG_FLAG}')) "
        f"GROUP BY cluster_id, job_id ORDER BY usable DESC, cluster_id, job_id LIMIT {most}",
        most,
    ).rows
    return [
        Job(None if cluster is None else str(cluster), None if job is None else str(job), int(str(count)))
        for cluster, job, count in rows
    ]
