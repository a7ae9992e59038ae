"""Who sends the events of a scenario: the resources of its hosts, and what every event of a rank carries."""

from __future__ import annotations

from dataclasses import dataclass

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Resource
from ingero_mcp.synth.scenario.layout import Layout
from ingero_mcp.synth.scenario.truth import View


@dataclass(frozen=True, slots=True)
class Sender:
    """The job as its events name it. An op trace knows no hosts."""

    layout: Layout
    view: View
    cluster: str

    def resource(self, host: int) -> Resource:
        """Who sends, for one of the hosts."""
        attributes: dict[str, AttributeValue] = {
            semconv.CLUSTER_ID: self.cluster,
            semconv.NODE_ID: self.node(host),
            semconv.JOB_ID: self.layout.job_id,
            semconv.WORLD_SIZE: self.layout.world,
        }
        return Resource(attributes | ({semconv.SERVICE_NAME: "ingero"} if self.view == "probe" else {}))

    def node(self, host: int) -> str:
        """The name of a host."""
        return semconv.UNKNOWN if self.view == "optrace" else self.layout.hosts[host]

    def of_rank(self, rank: int) -> dict[str, AttributeValue]:
        """What every event of a rank carries."""
        if self.view == "optrace":
            return {semconv.RANK: rank}
        local = rank % self.layout.ranks_per_host
        attributes: dict[str, AttributeValue] = {semconv.RANK: rank, semconv.LOCAL_RANK: local}
        attributes |= {semconv.PID: 4100 + local}
        if self.view == "probe":
            attributes |= {semconv.TID: 4100 + local, semconv.PROCESS: "python3", semconv.RANK_SOURCE: "environment"}
        return attributes


def gpu_uuid(layout: Layout, rank: int) -> str:
    """The GPU of a rank."""
    return f"GPU-{layout.job_id}-{rank:04d}"
