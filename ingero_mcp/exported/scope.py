"""Which rows an export is about, as conditions of SQL."""

from __future__ import annotations

from dataclasses import dataclass

from ingero_mcp.exported.asked import Asked
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.scope import equal
from ingero_mcp.windows import Window


@dataclass(frozen=True, slots=True)
class Scope:
    """A cluster, a job and a window; None means any. `before_ns` is where events end that are there already."""

    cluster_id: str | None
    job_id: str | None
    window: Window | None
    before_ns: int | None = None

    def events(self) -> str:
        """Events of the job."""
        job = [equal("job_id", self.job_id)] if self.job_id is not None else []
        until = [f"timestamp_ns < {self.before_ns}"] if self.before_ns is not None else []
        return _all_of(self._cluster() + job + self._within("timestamp_ns") + until)

    def chains(self, time: str) -> str:
        """Chains about the job, and those of its nodes that are about no job."""
        if self.job_id is None:
            return _all_of(self._cluster() + self._within(time))
        mine = f"({equal('job_id', self.job_id)} OR (job_id IS NULL AND {self._of_nodes(self.job_id)}))"
        return _all_of([*self._cluster(), mine, *self._within(time)])

    def of_nodes(self, time: str) -> str:
        """What the nodes of the job recorded about themselves."""
        nodes = [self._of_nodes(self.job_id)] if self.job_id is not None else []
        return _all_of(self._cluster() + nodes + self._within(time))

    def _within(self, time: str) -> list[str]:
        if self.window is None:
            return []
        return [f"{time} >= {self.window.start_ns}", f"{time} < {self.window.end_ns}"]

    def _cluster(self) -> list[str]:
        return [equal("cluster_id", self.cluster_id)] if self.cluster_id is not None else []

    def _of_nodes(self, job_id: str) -> str:
        return f"node_id IN (SELECT node_id FROM events WHERE {equal('job_id', job_id)})"


def scope_of(call: Call, asked: Asked) -> Scope:
    """The scope that is asked for; without a window nothing that is recorded is left out.

    On a live server its events end with the newest there is now: an export does not run after what comes in.
    """
    window = call.window(asked.window)
    if window is None or window.text != "all":
        return Scope(asked.cluster, asked.job, window)
    return Scope(asked.cluster, asked.job, None, window.end_ns if call.clock is not None else None)


def _all_of(terms: list[str]) -> str:
    return " AND ".join(terms) or "true"
