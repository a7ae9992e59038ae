"""What a finding cost: GPU-hours of the whole job, and their price per day."""

from __future__ import annotations

from typing import Final

import numpy as np

from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.rates import chip_of
from ingero_mcp.analysis.verdict import Diagnosis
from ingero_mcp.analysis.waste import NOTHING, Counted, Waste, standstill, waste
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explanation import Lost, rounded
from ingero_mcp.tools.gpus import REPORTS, Gpus, gpus_of_nodes, price_of
from ingero_mcp.tools.jobs import Job

HOUR_NS: Final = 3.6e12
_HOURS_A_DAY: Final = 24


def lost(call: Call, job: Job, diagnosis: Diagnosis, finding: Finding) -> Lost | None:
    """The GPU-hours that all GPUs of the job lost, each counted once; None where that is not known."""
    gpus = gpu_count(diagnosis)
    found = wasted(call, job, diagnosis, finding) if gpus else None
    if found is None or found.whole_ns <= 0:
        return None
    share = found.lost_ns / found.whole_ns
    price = price_of(gpus_of_job(call, job, diagnosis))
    per_day = share * gpus * _HOURS_A_DAY
    is_known = price.low is not None and price.high is not None
    chips = ", ".join(dict.fromkeys(chip_of(model) for model in price.model.split(", ")))
    return Lost(
        gpu_hours=rounded(found.lost_ns / HOUR_NS * gpus) or 0.0,
        is_upper_bound=found.is_bound,
        share_of_time=rounded(share) or 0.0,
        gpus=gpus,
        how=found.how,
        gpu_hours_per_day=rounded(per_day) or 0.0,
        usd_per_day_low=None if price.low is None else rounded(per_day * price.low),
        usd_per_day_high=None if price.high is None else rounded(per_day * price.high),
        rate=f"{chips}: {price.low:g} to {price.high:g} USD per GPU-hour" if is_known else None,
    )


def wasted(call: Call, job: Job, diagnosis: Diagnosis, finding: Finding, counted: Counted = NOTHING) -> Waste | None:
    """The wall time that a finding cost the job, beyond what is counted already; None where that is not known."""
    evidence = diagnosis.evidence
    if finding.verdict != "hang":
        return waste(evidence, diagnosis.steps, finding, diagnosis.comparison, counted)
    newest = call.read(
        "SELECT max(coalesce(TRY(timestamp_ns + duration_ns), timestamp_ns)) FROM events "
        f"WHERE {job.where(evidence.window)}"
    ).rows[0][0]
    return standstill(evidence, finding, newest, counted) if isinstance(newest, int) else None


def gpu_count(diagnosis: Diagnosis) -> int:
    """The GPUs of the job: one for each rank that it says it has, else for each that was seen."""
    evidence = diagnosis.evidence
    return evidence.world_size or len(np.unique(evidence.calls.rank)) or len(evidence.places)


def gpus_of_job(call: Call, job: Job, diagnosis: Diagnosis) -> list[Gpus]:
    """What the nodes of the job reported, else what any node of its cluster did."""
    reports = gpus_of_nodes(call, f"{job.in_cluster} AND {REPORTS}")
    hosts = set(diagnosis.evidence.hosts.values())
    return [gpus for (_, node), gpus in reports.items() if node in hosts] or list(reports.values())
