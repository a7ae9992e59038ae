"""Cohorts: which nodes of a cluster are compared with each other, because they are of one kind and do one thing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.analysis.rates import chip_of
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.gpus import REPORTS, gpus_of_nodes
from ingero_mcp.tools.samples import SeriesSamples
from ingero_mcp.tools.scope import Scope
from ingero_mcp.tools.series import gpu_model

_GPU: Final = "GPU"
_WORDS: Final = {
    _GPU: ("", "unknown GPU"),
    semconv.WORKLOAD_TYPE: ("", "unknown workload"),
    semconv.STAGE: ("stage ", "no stage"),
    semconv.CGROUP_PATH_HASH: ("cgroup ", "no cgroup"),
}
"""What separates nodes: what stands before it in the name of a cohort, and what is written where it is not known."""


def cohorts(call: Call, scope: Scope, found: Sequence[SeriesSamples]) -> list[str]:
    """The cohort of each, "" where all of its cluster are of one.

    By the model of the GPU, the workload, the pipeline stage and the cgroup path (where nodes share it). Where all who
    say a thing say the same, it separates nobody, and who does not say it counts with the others.
    """
    reports = gpus_of_nodes(call, f"{Scope(cluster_id=scope.cluster_id).where()} AND {REPORTS}")
    models = {place: gpus.model for place, gpus in reports.items()}
    said = [_said(one, models) for one in found]
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one, own in zip(found, said, strict=True):
        for key, value in own.items():
            values[one.cluster_id, key] |= {value} - {""}
    return [
        " / ".join(_word(key, value) for key, value in own.items() if len(values[one.cluster_id, key]) > 1)
        for one, own in zip(found, said, strict=True)
    ]


def _said(one: SeriesSamples, models: Mapping[tuple[str, str], str]) -> dict[str, str]:
    model = gpu_model(one.said) or models.get((one.cluster_id, one.node_id), "")
    return {key: one.said.get(key, "") for key in _WORDS} | {_GPU: chip_of(model) or model}


def _word(key: str, value: str) -> str:
    before, unknown = _WORDS[key]
    return f"{before}{value}" if value else unknown
