"""Events that are incidents by themselves: the kernel or Kubernetes has ended something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ingero_mcp.analysis.chains.chain import JOINED_NS, Chain, Kind, Line
from ingero_mcp.analysis.chains.record import CELL_NS, Moment, Record, Span, first_ids, named
from ingero_mcp.analysis.findings import Statement


@dataclass(frozen=True, slots=True)
class _Ends:
    """A kind of such events: their names, what they mean and what to do."""

    kind: Kind
    names: frozenset[str]
    words: str
    means: str
    do: str


_KINDS: Final = (
    _Ends(
        "oom",
        frozenset(("oom.kill", "oom_kill", "pod_oom_kill")),
        "killed for want of memory",
        "The kernel's out-of-memory killer ended a process. If it was a rank or its worker, the job hangs or ends.",
        "raise the memory limit of the container, or load and pin less: fewer workers, smaller prefetch",
    ),
    _Ends(
        "pod_restart",
        frozenset(("pod_restart", "k8s.pod.restart")),
        "pod restarted",
        "Kubernetes restarted a pod. Ranks in it lose their state; the others wait for them.",
        "look at the pod's last state and its probes: kubectl describe pod",
    ),
    _Ends(
        "pod_eviction",
        frozenset(("pod_eviction", "k8s.pod.eviction")),
        "pod evicted",
        "Kubernetes took a pod off this node, because the node ran short of something or for another of more weight.",
        "give the pod requests equal to its limits, and a priority class",
    ),
)

NAMES: Final = frozenset(name for kind in _KINDS for name in kind.names)


def single_events(record: Record) -> Iterator[Chain]:
    """One chain for each kind and time; events that follow each other soon are one."""
    for kind in _KINDS:
        run: list[Moment] = []
        for moment in sorted(record.moments, key=lambda one: one.at_ns):
            if moment.name not in kind.names:
                continue
            if run and moment.at_ns > run[-1].at_ns + JOINED_NS:
                yield _chain(record, kind, run)
                run = []
            run.append(moment)
        if run:
            yield _chain(record, kind, run)


def _chain(record: Record, kind: _Ends, run: list[Moment]) -> Chain:
    who = ", ".join(dict.fromkeys(_who(one) for one in run))
    first, last = run[0].at_ns, run[-1].at_ns
    statements = [
        Statement(f"{len(run)} x {run[0].name}: {who}", len(run), "events", first_ids(o.event_id for o in run))
    ]
    near = Span(first, last).cells(CELL_NS)
    used = [one for one in record.loads if near.touches(one.at_ns, one.at_ns) and one.mem_pct is not None]
    if kind.kind == "oom" and used:
        most = max(one.mem_pct or 0.0 for one in used)
        statements.append(Statement(f"{most:.0f}% of the host's memory was in use", most, "%"))
    text = f"{who}: {kind.words}"
    return Chain(
        cluster_id=record.cluster_id,
        node_id=record.node_id,
        kind=kind.kind,
        descriptor=kind.kind.replace("_", "-"),
        start_ns=first,
        end_ns=last,
        severity="HIGH",
        summary=text,
        root_cause=text,
        explanation=kind.means,
        recommendations=(kind.do,),
        op=run[0].name,
        timeline=tuple(Line("HOST", one.name, f"{_who(one)}: {kind.words}") for one in run[:5]),
        evidence=tuple(statements),
        job_id=record.job_id,
    )


def _who(moment: Moment) -> str:
    return moment.about or named(moment.process, moment.pid)
