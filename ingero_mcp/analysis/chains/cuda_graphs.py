"""CUDA graphs whose capture failed or was not ended, or that were made and never launched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ingero_mcp.analysis.chains.chain import Chain, Line
from ingero_mcp.analysis.chains.record import CELL_NS, Moment, Record, Span, first_ids, named
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.severity import Severity

BEGINS: Final = frozenset(("graphBeginCapture", "cudaStreamBeginCapture"))
ENDS: Final = frozenset(("graphEndCapture", "cudaStreamEndCapture"))
MADE: Final = frozenset(("graphInstantiate", "cudaGraphInstantiate", "cudaGraphInstantiateWithFlags"))
LAUNCHED: Final = frozenset(("graphLaunch", "cudaGraphLaunch"))
NAMES: Final = BEGINS | ENDS | MADE | LAUNCHED

_OPEN_NS: Final = 5 * 10**9
_UNUSED_NS: Final = 30 * 10**9
_SHORT_PCT: Final = 90.0
_WARM: Final = (
    "run 3 or more iterations before the capture (torch.cuda.make_graphed_callables does it), and set "
    "CUBLAS_WORKSPACE_CONFIG=:4096:8, so that libraries do not allocate while capturing"
)


def cuda_graphs(record: Record) -> Iterator[Chain]:
    """By process: handles of graphs are not recorded, so one graph of a process is not told from another."""
    for pid in sorted({one.pid for one in record.moments if one.pid is not None and one.name in NAMES}):
        own = sorted((one for one in record.moments if one.pid == pid and one.name in NAMES), key=lambda one: one.at_ns)
        yield from _failed(record, own)
        yield from _left_open(record, own)
        yield from _never_launched(record, own)


def _failed(record: Record, own: list[Moment]) -> Iterator[Chain]:
    for one in own:
        if one.name in ENDS and one.about not in ("", "0"):
            near = Span(one.at_ns, one.at_ns).cells(CELL_NS)
            loads = [load for load in record.loads if near.touches(load.at_ns, load.at_ns)]
            used = max((load.mem_pct or 0.0 for load in loads), default=0.0)
            short = f"; {used:.0f}% of the host's memory was in use" if used > _SHORT_PCT else ""
            text = (
                f"the capture of a CUDA graph failed in {named(one.process, pid=one.pid)} with code {one.about}{short}"
            )
            yield _chain(record, "capture-failed", "HIGH", one, one.at_ns, text, _WARM)


def _left_open(record: Record, own: list[Moment]) -> Iterator[Chain]:
    for one in own:
        limit = one.at_ns + _OPEN_NS
        is_ended = any(end.name in ENDS and one.at_ns <= end.at_ns <= limit for end in own)
        if one.name in BEGINS and not is_ended and record.seen.end_ns > limit:
            text = f"{named(one.process, one.pid)} began to capture a CUDA graph and did not end it within 5 s"
            yield _chain(record, "capture-open", "MEDIUM", one, limit, text, _WARM)


def _never_launched(record: Record, own: list[Moment]) -> Iterator[Chain]:
    made = [one for one in own if one.name in MADE]
    if made and record.seen.end_ns > made[0].at_ns + _UNUSED_NS and not any(one.name in LAUNCHED for one in own):
        text = f"{named(made[0].process, made[0].pid)} made {len(made)} CUDA graphs and launched none within 30 s"
        do = "look whether inputs change their shape, so that the captured graph is not used"
        yield _chain(record, "never-launched", "LOW", made[0], made[0].at_ns + _UNUSED_NS, text, do)


def _chain(record: Record, what: str, severity: Severity, one: Moment, end_ns: int, text: str, do: str) -> Chain:
    return Chain(
        cluster_id=record.cluster_id,
        node_id=record.node_id,
        kind="cuda_graph",
        descriptor=f"graph-{what}-{one.pid}",
        start_ns=one.at_ns,
        end_ns=end_ns,
        severity=severity,
        summary=text,
        root_cause=text,
        explanation="Launching a captured graph costs one call in place of hundreds; without it the CPU launches every "
        "kernel.",
        recommendations=(do,),
        op=one.name,
        timeline=(Line("GRAPH", one.name, text),),
        evidence=(Statement(text, None, "", first_ids([one.event_id])),),
        job_id=record.job_id,
    )
