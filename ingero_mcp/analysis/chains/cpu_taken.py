"""The threads that call the GPU did not have a CPU."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.chain import Line
from ingero_mcp.analysis.chains.record import CELL_NS, TRACERS, Away, Record, first_ids, named
from ingero_mcp.analysis.chains.usual import Against, against_rest
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import duration_text, listed

_MATERIAL: Final = 0.2  # of the lost time
_LEAST_SWITCHES: Final = 5
_OFTEN: Final = 2.0  # times the usual rate, where only the number of switches speaks
_MOST_NAMED: Final = 3
RUNNABLE: Final = "runqueue"


def cpu_taken(record: Record, trouble: Trouble) -> Cause | None:
    """Time off the CPU inside the slow calls, or runnable without a CPU; or many more context switches than usual.

    Blocked threads wait by their own will and do not count. Where a recorder did not say why a thread was off the CPU,
    only what lies inside a slow call counts as time, and the rest as a number.
    """
    cells = trouble.span.cells(CELL_NS)
    own = [one for one in record.away if one.pid in trouble.pids and one.state in ("", RUNNABLE)]
    here = [one for one in own if cells.touches(one.cell_ns, one.cell_ns + CELL_NS)]
    runnable_ns = sum(one.off_cpu_ns for one in here if one.state == RUNNABLE)
    lost_ns = trouble.off_cpu_ns if trouble.op else runnable_ns
    switches = against_rest([(one.cell_ns, one.count) for one in own], CELL_NS, trouble.span, record.seen)
    share = trouble.share(lost_ns)
    is_often = switches.amount >= _LEAST_SWITCHES and (switches.times is None or switches.times >= _OFTEN)
    if share < _MATERIAL and not (is_often and switches.is_more):
        return None
    takers = _takers(here)
    return Cause(
        words=_words(trouble, lost_ns, switches, takers, is_known=any(one.state for one in here)),
        strength=share if share >= _MATERIAL else 0.0,
        statements=tuple(_statements(trouble, lost_ns, switches, here)),
        lines=(Line("HOST", "sched_switch", _detail(switches, takers), lost_ns or None),),
        advice=(_advice(takers),),
    )


def _words(trouble: Trouble, lost_ns: int, switches: Against, takers: list[str], *, is_known: bool) -> str:
    by = f", taken by {listed(takers)}" if takers else ""
    by += "" if is_known or not lost_ns else " (whether they waited or slept was not recorded)"
    where = "inside the slow calls" if trouble.op else "while they could have run"
    lost = (
        f"its threads were off the CPU {where} for {duration_text(lost_ns)} of {duration_text(trouble.excess_ns)} lost"
    )
    if not switches.amount:
        return f"{lost}{by}"
    count = f"{int(switches.amount)} context switches of its threads, {switches.words()}"
    if lost_ns:
        return f"{lost}{by}; {count}"
    return (
        f"{count}{by}, though none of the {duration_text(trouble.excess_ns)} lost was off the CPU"
        if trouble.op
        else (f"{count}{by}")
    )


def _statements(trouble: Trouble, lost_ns: int, switches: Against, here: list[Away]) -> list[Statement]:
    ids = first_ids(one.event_id for one in sorted(here, key=lambda one: -one.off_cpu_ns))
    found = []
    if lost_ns:
        text = f"off the CPU for {duration_text(lost_ns)} of {duration_text(trouble.excess_ns)} that were lost"
        found.append(Statement(text, lost_ns / 1e6, "ms", ids))
    if switches.amount:
        text = f"{int(switches.amount)} context switches of the process in these seconds, {switches.words()}"
        found.append(Statement(text, switches.amount, "switches", ids))
    return found


def _detail(switches: Against, takers: list[str]) -> str:
    by = f" to {listed(takers)}" if takers else ""
    return f"{int(switches.amount)} context switches{by}"


def _takers(here: list[Away]) -> list[str]:
    """Who took the CPU, most of it first; nobody where the recorder did not say."""
    most: Counter[tuple[str, int | None]] = Counter()
    for one in here:
        if (one.by or one.by_pid is not None) and one.by not in TRACERS and not one.by.startswith("swapper"):
            most[one.by, one.by_pid] += one.off_cpu_ns
    return [named(by, pid) for (by, pid), _ in most.most_common(_MOST_NAMED)]


def _advice(takers: list[str]) -> str:
    if takers:
        return f"give the training process its own cores, or move {listed(takers)} to others (taskset, cpuset, nice)"
    return "give the training process its own cores (taskset, cpuset); who took its CPU was not recorded"
