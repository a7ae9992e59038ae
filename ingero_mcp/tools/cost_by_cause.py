"""GPU-hours lost by cause: what each finding of the jobs in a window cost, every GPU and every step counted once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.rates import Rate
from ingero_mcp.analysis.verdict import Diagnosis
from ingero_mcp.analysis.waste import NOTHING, Waste
from ingero_mcp.analysis.words import who
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import diagnosed
from ingero_mcp.tools.gpus import Price, price_of
from ingero_mcp.tools.jobs import MAX_JOBS, Job, jobs
from ingero_mcp.tools.lost import HOUR_NS, gpu_count, gpus_of_job, wasted
from ingero_mcp.windows import Window

CAUSE_COLUMNS: Final = (
    "cluster_id",
    "job_id",
    "cause",
    "verdict",
    "culprits",
    "gpu_hours_lost",
    "is_upper_bound",
    "share_of_time",
    "gpus",
    "counted_above",
    "how",
    "gpu_model",
    "usd_low",
    "usd_high",
    "rate_low",
    "rate_high",
)

CAUSE_NOTES: Final = (
    "GPU-hours lost are wall time that the job took longer, times all of its GPUs: every waiting rank once; waits are "
    "not added up",
    "a step is counted with the first of its job's rows that it belongs to (the most important finding comes first); "
    "counted_above is what the finding also cost by itself, in steps that a row above has counted",
)

_MOST_CULPRITS: Final = 3


@dataclass(frozen=True, slots=True)
class CauseRow:
    """A finding of a job. `hours` is None where it is not known what it cost, 0 where the job is healthy."""

    job: Job
    finding: Finding
    waste: Waste | None
    alone: Waste | None
    hours: float | None
    gpus: int
    price: Price
    nodes: dict[int, str]

    @property
    def usd(self) -> tuple[float, float] | None:
        """From and to; None where the hours or the price are not known."""
        if self.hours is None or self.price.low is None or self.price.high is None:
            return None
        return self.hours * self.price.low, self.hours * self.price.high

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The published prices behind it."""
        return self.price.rates

    @property
    def cells(self) -> tuple[object, ...]:
        """The row in the order of `CAUSE_COLUMNS`."""
        found = self.waste
        usd = self.usd
        return (
            self.job.cluster_id,
            self.job.job_id,
            self.finding.cause,
            self.finding.verdict,
            _culprits(self.finding, self.nodes),
            _rounded(self.hours),
            found.is_bound if found else None,
            _rounded(found.lost_ns / found.whole_ns) if found and found.whole_ns else self.hours,
            self.gpus or None,
            _rounded(self._counted_above),
            _how(self.finding, found),
            self.price.model or "unknown",
            _rounded(usd[0]) if usd else None,
            _rounded(usd[1]) if usd else None,
            self.price.low,
            self.price.high,
        )

    @property
    def _counted_above(self) -> float:
        if self.waste is None or self.alone is None:
            return 0.0
        return max(self.alone.lost_ns - self.waste.lost_ns, 0.0) / HOUR_NS * self.gpus


def rows_by_cause(
    call: Call, window: Window, cluster_id: str | None, gpu_model: str, own_rate: float | None
) -> tuple[list[CauseRow], bool]:
    """The findings of the jobs in the window, the job that lost most first; whether these are all jobs."""
    found = jobs(call, window, cluster_id, most=MAX_JOBS + 1)
    by_job = [list(_of_job(call, job, window, gpu_model, own_rate)) for job in found[:MAX_JOBS]]
    by_job.sort(key=lambda rows: -sum(row.hours or 0.0 for row in rows))
    return [row for rows in by_job for row in rows], len(found) <= MAX_JOBS


def _of_job(call: Call, job: Job, window: Window, gpu_model: str, own_rate: float | None) -> Iterator[CauseRow]:
    diagnosis = diagnosed(call, job, window, None)
    gpus = gpu_count(diagnosis)
    price = price_of(gpus_of_job(call, job, diagnosis), gpu_model, own_rate)
    counted = NOTHING
    for finding in diagnosis.findings:
        found = wasted(call, job, diagnosis, finding, counted)
        alone = found if counted == NOTHING else wasted(call, job, diagnosis, finding)
        counted = found.counted if found else counted
        hours = _hours(finding, found, gpus)
        yield CauseRow(job, finding, found, alone, hours, gpus, price, _nodes(diagnosis))


def _hours(finding: Finding, found: Waste | None, gpus: int) -> float | None:
    if finding.verdict == "healthy":
        return 0.0
    return found.lost_ns / HOUR_NS * gpus if found and gpus else None


def _how(finding: Finding, found: Waste | None) -> str:
    if found is not None:
        return found.how
    if finding.verdict == "healthy":
        return "healthy: nothing was found that costs time"
    return "not known: nothing says how much longer it took"


def _nodes(diagnosis: Diagnosis) -> dict[int, str]:
    return diagnosis.evidence.hosts


def _culprits(finding: Finding, nodes: dict[int, str]) -> str:
    groups = [f"{group.kind} {group.id}" for group in finding.groups[:_MOST_CULPRITS]]
    ranks = [one.rank for one in finding.culprits]
    if not ranks:
        return ", ".join(groups)
    hosts = list(dict.fromkeys(nodes[rank] for rank in ranks if rank in nodes))
    where = f" on {', '.join(hosts)}" if 0 < len(hosts) <= _MOST_CULPRITS else ""
    return ", ".join([f"{who(ranks)}{where}", *groups])


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
