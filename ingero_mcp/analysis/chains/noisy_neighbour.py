"""Somebody else on the host takes the CPU that a process which calls the GPU could have used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Final

from ingero_mcp.analysis.chains.chain import JOINED_NS, Chain, Line
from ingero_mcp.analysis.chains.cpu_busy import is_saturated
from ingero_mcp.analysis.chains.cpu_taken import RUNNABLE
from ingero_mcp.analysis.chains.record import CELL_NS, TRACERS, Away, Record, Scheduled, Span, first_ids, named
from ingero_mcp.analysis.chains.usual import against_rest
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.severity import Severity
from ingero_mcp.analysis.words import duration_text

_MATERIAL: Final = 0.02  # of the time of a process; a job that meets in collectives waits for the slowest of all
_SERIOUS: Final = 0.05
_SEVERE: Final = 0.25
_OFTEN: Final = 2.0
_MUCH_LONGER: Final = 2.0  # times the median of the other cgroups
_VERY_MUCH_LONGER: Final = 5.0
_ADVICE: Final = "keep {who} off the cores of the job: cpuset or nice for it, or another host"


def noisy_neighbour(record: Record) -> Iterator[Chain]:
    """By who took the CPU where that was recorded, else by cgroups while the CPUs of the host were busy."""
    known = [one for one in record.away if one.state == RUNNABLE and _is_other(record, one)]
    yield from _by_taker(record, known) if known else _by_cgroup(record)


def _is_other(record: Record, one: Away) -> bool:
    if one.by_pid is None and not one.by:
        return False
    own = one.by_pid in record.callers() or one.by_pid in record.children.get(one.pid, ())
    return not own and one.by not in TRACERS and not one.by.startswith("swapper")


def _by_taker(record: Record, known: list[Away]) -> Iterator[Chain]:
    """One chain for each taker and time, whoever of the processes it took the CPU from."""
    takers: defaultdict[str, list[Away]] = defaultdict(list)
    for one in known:
        takers[one.by or f"pid {one.by_pid}"].append(one)
    for by, own in sorted(takers.items()):
        lost: defaultdict[tuple[int, int], int] = defaultdict(int)
        for one in own:
            lost[one.cell_ns, one.pid] += one.off_cpu_ns
        # It begins and ends somewhere within a cell: half as much beside what is material belongs to it.
        often = sorted({cell for (cell, _), ns in lost.items() if ns >= _MATERIAL * CELL_NS / 2})
        for span in _runs(often):
            if not any(ns >= _MATERIAL * CELL_NS and span.touches(cell, cell) for (cell, _), ns in lost.items()):
                continue
            time = against_rest([(cell, ns) for (cell, _), ns in lost.items()], CELL_NS, span, record.seen)
            if time.times is None or time.times >= _OFTEN:
                yield _of_taker(record, by, [one for one in own if _is_in(span, one)], span, time.words())


def _is_in(span: Span, one: Away) -> bool:
    return span.touches(one.cell_ns, one.cell_ns + CELL_NS)


def _runs(cells: list[int]) -> list[Span]:
    runs: list[Span] = []
    for cell in cells:
        if runs and cell <= runs[-1].end_ns + JOINED_NS:
            runs[-1] = Span(runs[-1].start_ns, cell + CELL_NS)
        else:
            runs.append(Span(cell, cell + CELL_NS))
    return runs


def _of_taker(record: Record, by: str, here: list[Away], span: Span, usual: str) -> Chain:
    lost: Counter[int] = Counter()
    for one in here:
        lost[one.pid] += one.off_cpu_ns
    (pid, taken_ns), *others = lost.most_common()
    most = max(here, key=lambda one: (one.pid == pid, one.off_cpu_ns))
    who = named(most.by, most.by_pid)
    share = taken_ns / 1e9 / span.seconds
    more = f", and that of {len(others)} more processes" if others else ""
    whose, time = named(most.process, pid), duration_text(taken_ns)
    text = f"{who} took the CPU of {whose} for {time}, {share:.1%} of {span.seconds:.0f} s{more}"
    ids = first_ids(one.event_id for one in sorted(here, key=lambda one: -one.off_cpu_ns))
    fact = Statement(f"{text}: {sum(one.count for one in here)} times, {usual}", taken_ns / 1e6, "ms", ids)
    severity: Severity = "HIGH" if share >= _SEVERE else "MEDIUM" if share >= _SERIOUS else "LOW"
    return _named(record, span, severity, f"neighbour-{by}", text, who, fact)


def _by_cgroup(record: Record) -> Iterator[Chain]:
    """An agent puts a switch down to a cgroup that is not always the right one, and counts sleep: what it says counts
    only while the CPUs are busy, and never more than MEDIUM."""
    windows: defaultdict[Span, list[Scheduled]] = defaultdict(list)
    for one in record.scheduled:
        windows[one.span].append(one)
    late: list[tuple[Scheduled, float]] = []
    for span, rows in sorted(windows.items(), key=lambda item: item[0].start_ns):
        times = _longer(record, rows)
        if times and is_saturated(record, span):
            if late and span.start_ns > late[-1][0].span.end_ns + JOINED_NS:
                yield _of_cgroup(record, late)
                late = []
            late.append(times)
    if late:
        yield _of_cgroup(record, late)


def _longer(record: Record, rows: list[Scheduled]) -> tuple[Scheduled, float] | None:
    """The cgroup of the job and how many times as long as in others its threads were off the CPU, if much longer."""
    others = [one.p99_ns for one in rows if one.cgroup_id not in record.cgroups]
    own = [one for one in rows if one.cgroup_id in record.cgroups]
    usual = median(others) if others else 0
    if not own or not usual or own[0].p99_ns < _MUCH_LONGER * usual:
        return None
    return own[0], own[0].p99_ns / usual


def _of_cgroup(record: Record, late: list[tuple[Scheduled, float]]) -> Chain:
    span = Span(late[0][0].span.start_ns, late[-1][0].span.end_ns)
    worst = max(times for _, times in late)
    text = f"the threads of {late[0][0].name} were off the CPU {worst:.1f}x as long (p99) as those of other cgroups"
    fact = Statement(f"{text}, in {len(late)} windows; sleep is not told from waiting", worst, "x")
    severity: Severity = "MEDIUM" if worst >= _VERY_MUCH_LONGER else "LOW"
    return _named(record, span, severity, "neighbour-cgroup", text, "the other cgroups", fact)


def _named(
    record: Record, span: Span, severity: Severity, descriptor: str, summary: str, who: str, fact: Statement
) -> Chain:
    return Chain(
        cluster_id=record.cluster_id,
        node_id=record.node_id,
        kind="noisy_neighbour",
        descriptor=descriptor,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        severity=severity,
        summary=summary,
        root_cause=fact.statement,
        explanation="A thread that could run had no CPU. Whoever had it is not one of the processes that call the GPU.",
        recommendations=(_ADVICE.format(who=who),),
        timeline=(Line("HOST", "sched_switch", summary),),
        evidence=(fact,),
        job_id=record.job_id,
    )
