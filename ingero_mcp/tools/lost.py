"""What a finding cost: GPU-hours of the whole job, and their price per day."""

from __future__ import annotations

from typing import Final

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.rates import chip_of, rates_for
from ingero_mcp.analysis.verdict import Diagnosis
from ingero_mcp.analysis.waste import waste
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explanation import Lost, rounded
from ingero_mcp.tools.jobs import Job
from ingero_mcp.views.view import attribute

_HOUR_NS: Final = 3.6e12
_HOURS_A_DAY: Final = 24


def lost(call: Call, job: Job, diagnosis: Diagnosis, finding: Finding) -> Lost | None:
    """The GPU-hours that all GPUs of the job lost, each counted once; None where that is not known."""
    evidence = diagnosis.evidence
    gpus = evidence.world_size or len(np.unique(evidence.calls.rank))
    found = waste(evidence, diagnosis.steps, finding, diagnosis.comparison) if gpus else None
    if found is None or found.whole_ns <= 0:
        return None
    share = found.lost_ns / found.whole_ns
    model, provider = _gpu(call, job)
    prices = [rate.usd_per_gpu_hour for rate in rates_for(model, provider)] if model else []
    per_day = share * gpus * _HOURS_A_DAY
    return Lost(
        gpu_hours=rounded(found.lost_ns / _HOUR_NS * gpus) or 0.0,
        is_upper_bound=found.is_bound,
        share_of_time=rounded(share) or 0.0,
        gpus=gpus,
        how=found.how,
        gpu_hours_per_day=rounded(per_day) or 0.0,
        usd_per_day_low=rounded(per_day * min(prices)) if prices else None,
        usd_per_day_high=rounded(per_day * max(prices)) if prices else None,
        rate=f"{chip_of(model)}: {min(prices):g} to {max(prices):g} USD per GPU-hour" if prices else None,
    )


def _gpu(call: Call, job: Job) -> tuple[str, str]:
    """The model and the provider that the nodes of the job's cluster reported; empty if none did."""
    model, provider = call.read(
        f"SELECT max({attribute(semconv.GPU_MODEL)}) AS model, max({attribute(semconv.PROVIDER)}) AS provider "
        f"FROM events WHERE {job.in_cluster} AND metric_name = '{semconv.NODE_INFO}'",
        1,
    ).rows[0]
    return str(model or ""), str(provider or "")
