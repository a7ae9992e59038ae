"""The host had no CPU to spare: its CPUs were busy, or more was runnable than it has cores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from ingero_mcp.analysis.chains.cause import Cause, Trouble
from ingero_mcp.analysis.chains.chain import Line
from ingero_mcp.analysis.chains.record import BLOCK_NS, CELL_NS, TRACERS, Load, Record, Span, Switches
from ingero_mcp.analysis.chains.usual import against_rest
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import duration_text, listed

_BUSY_PCT: Final = 90.0
_BUSY_LOAD: Final = 1.0  # runnable threads per core
_MORE: Final = 1.5  # times the usual load
_LEAST_SAMPLES: Final = 1
_MOST_NAMED: Final = 3
_LEAST_SHARE: Final = 0.05  # of the context switches, to be named


@dataclass(frozen=True, slots=True)
class _Busy:
    """How busy the CPUs were in the stretch, and in the rest of the record; None where no sample says it."""

    cpu_pct: float | None
    usual_cpu_pct: float | None
    per_core: float | None
    usual_per_core: float | None

    @property
    def is_saturated(self) -> bool:
        """Whether there was no CPU to spare."""
        return (self.cpu_pct or 0.0) >= _BUSY_PCT or (self.per_core or 0.0) >= _BUSY_LOAD

    @property
    def is_unusual(self) -> bool:
        """Whether that is so, and is not so in the calm rest as well: what always is explains nothing."""
        by_cpu = (self.cpu_pct or 0.0) >= _BUSY_PCT and (self.usual_cpu_pct or 0.0) < _BUSY_PCT
        by_load = (self.per_core or 0.0) >= max(_BUSY_LOAD, _MORE * (self.usual_per_core or 0.0))
        return by_cpu or by_load


def cpu_busy(record: Record, trouble: Trouble) -> Cause | None:
    """Saturated CPUs within the stretch itself, with the processes that were switched to most."""
    busy = _busy(record, trouble.span.cells(CELL_NS))
    if not busy.is_unusual:
        return None
    within = trouble.span.cells(BLOCK_NS)
    here = [one for one in record.switches if within.touches(one.block_ns, one.block_ns + BLOCK_NS)]
    groups = _groups(record, trouble, here)
    who = f": {listed([_who(group) for group in groups[:_MOST_NAMED]])}" if groups else ""
    load = _load_words(busy, record.cores)
    return Cause(
        words=f"the host's CPUs were contended ({load}){who}",
        strength=0.0,
        statements=tuple(_statements(record, trouble, busy, load, here, groups)),
        lines=tuple(_lines(load, here, groups)),
        advice=(_advice(groups, record.cores),),
        raises=True,
        short=_short(busy, groups),
    )


def _short(busy: _Busy, groups: list[_Group]) -> str:
    names = listed([group.process for group in groups[:_MOST_NAMED]])
    by = f" by {'its own ' if groups and groups[0].are_children else ''}{names}" if groups else ""
    how = f" ({busy.cpu_pct:.0f}% busy)" if busy.cpu_pct is not None else ""
    return f"the host's CPUs were contended{by}{how}"


def is_saturated(record: Record, span: Span) -> bool:
    """Whether the CPUs of the host were busy in the stretch."""
    return _busy(record, span.cells(CELL_NS)).is_saturated


def _busy(record: Record, span: Span) -> _Busy:
    here = [one for one in record.loads if span.touches(one.at_ns, one.at_ns)]
    rest = [one for one in record.loads if not span.touches(one.at_ns, one.at_ns)]
    if len(here) < _LEAST_SAMPLES:
        return _Busy(None, None, None, None)
    return _Busy(_cpu(here), _cpu(rest), _per_core(record, here), _per_core(record, rest))


def _per_core(record: Record, loads: list[Load]) -> float | None:
    load = _middle(one.load_avg for one in loads)
    return load / record.cores if load is not None and record.cores else None


def _cpu(loads: list[Load]) -> float | None:
    return _middle(one.cpu_pct for one in loads)


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _load_words(busy: _Busy, cores: int | None) -> str:
    parts = []
    if busy.cpu_pct is not None:
        usual = "" if busy.usual_cpu_pct is None else f", {busy.usual_cpu_pct:.0f}% in the rest of the recording"
        parts.append(f"{busy.cpu_pct:.0f}% busy{usual}")
    if busy.per_core is not None:
        parts.append(f"load {busy.per_core:.2f} per core of {cores}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class _Group:
    """Processes of one name: how often they were switched to, and whether the process in trouble has started them."""

    process: str
    pids: tuple[int, ...]
    count: int
    off_cpu_ns: int
    are_children: bool


def _groups(record: Record, trouble: Trouble, here: list[Switches]) -> list[_Group]:
    """Who was switched to most, without the recorder and without those that hardly were."""
    own = frozenset(pid for parent in trouble.pids for pid in record.children.get(parent, ()))
    by_name: dict[tuple[str, bool], list[Switches]] = {}
    for one in here:
        if one.process not in TRACERS:
            by_name.setdefault((one.process or f"pid {one.pid}", one.pid in own), []).append(one)
    all_of_it = sum(one.count for one in here) or 1
    groups = [
        _Group(
            process,
            tuple(sorted({one.pid for one in found})),
            sum(one.count for one in found),
            sum(one.off_cpu_ns for one in found),
            are_children,
        )
        for (process, are_children), found in by_name.items()
    ]
    kept = [group for group in groups if group.count >= _LEAST_SHARE * all_of_it]
    return sorted(kept, key=lambda group: -group.count)


def _who(group: _Group) -> str:
    pids = ", ".join(map(str, group.pids[:6]))
    child = ", started by the process in trouble" if group.are_children else ""
    return f"{group.process} (pid {pids}{child}) with {group.count} context switches"


def _statements(
    record: Record, trouble: Trouble, busy: _Busy, load: str, here: list[Switches], groups: list[_Group]
) -> list[Statement]:
    found = [Statement(f"CPUs of the host: {load}", busy.cpu_pct, "%")]
    if not here:
        return found
    amounts = [(one.block_ns, one.count) for one in record.switches]
    switches = against_rest(amounts, BLOCK_NS, trouble.span, record.seen)
    text = f"{int(switches.amount)} context switches in these minutes, {switches.words()}"
    found.append(Statement(text, switches.amount, "switches"))
    count, off_cpu_ns = sum(one.count for one in record.switches), sum(one.off_cpu_ns for one in record.switches)
    longest_ns = sum({(one.pid, one.block_ns): one.longest_ns for one in record.switches}.values())
    text = (
        f"in the whole recording {count} sched_switch and {duration_text(off_cpu_ns)} off the CPU in sum, sleep "
        f"included: the longest of each process and minute alone are {duration_text(longest_ns)}"
    )
    found.append(Statement(text, count, "switches"))
    found += [Statement(f"{_who(group)}, {duration_text(group.off_cpu_ns)} off the CPU, sleep included", group.count,
                        "switches") for group in groups[:_MOST_NAMED]]  # fmt: skip
    return found


def _lines(load: str, here: list[Switches], groups: list[_Group]) -> list[Line]:
    found = [Line("SYSTEM", "cpu", load)]
    if here:
        who = f", most of them {listed([group.process for group in groups[:_MOST_NAMED]])}" if groups else ""
        found.append(Line("HOST", "sched_switch", f"{sum(one.count for one in here)} context switches{who}"))
    return found


def _advice(groups: list[_Group], cores: int | None) -> str:
    own = [group for group in groups if group.are_children]
    if own:
        names = listed([f"{group.process} (pid {', '.join(map(str, group.pids[:6]))})" for group in own[:_MOST_NAMED]])
        of = f" than its {cores} cores can run" if cores else ""
        return f"the job's own workers {names} take the CPUs: start fewer{of} (num_workers), or do less work in each"
    if groups:
        return f"move {groups[0].process} (pid {', '.join(map(str, groups[0].pids[:6]))}) to other cores or hosts"
    return "find out what runs on the host beside the job: who it is was not recorded"
