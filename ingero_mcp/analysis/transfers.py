"""The network: transfers that take longer than they should, on the communicators that cross a link, with nobody late.

With GPU timing the time of a transfer does not depend on who was late (`transfer_times`), so that communicators can be
compared with their own past, and with others of their like. With host timing it also holds what the GPUs still had to
compute: a slow GPU looks the same, and only what the network says of itself (`retransmits`) can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Affected, Finding, Group, Statement
from ingero_mcp.analysis.incidents import Incident, spread
from ingero_mcp.analysis.links import find_link
from ingero_mcp.analysis.retransmits import Retransmits, find_retransmits
from ingero_mcp.analysis.shifts import Shift, find_shift
from ingero_mcp.analysis.slow_peers import slower_than_peers
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.transfer_times import Transfers, ratios, transfers, whole_transfers
from ingero_mcp.analysis.words import duration_text, listed, plural, ranks_text

__all__ = ["find_network", "slow_steps", "transfers"]

LONGER: Final = 1.08
"""Transfers that take so many times as long as in the other steps of the job are slow."""

_LONGER_STEPS: Final = 1.03  # with host timing it is the whole step that is longer
_LASTING: Final = 0.1  # of the steps: with host timing what is shorter may be anything
_LEAST_SHARE: Final = 0.001  # of a step, that has to be lost in one
_LEAST: Final = 8  # steps
_QUIET: Final = 0.005  # smaller spreads are not believed
_SURE: Final = 4.0  # standard errors
_MOST_GROUPS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Slow:
    """Communicators (numbers in `times`) that were slow in some steps, and those that surely were not."""

    comms: Int64s
    well: Int64s
    steps: Bools
    ratio: float
    excess_ns: float


def find_network(evidence: Evidence, steps: Steps, late: Bools) -> Finding | None:
    """What is to be said of the network. `late` are the steps in which some rank was late (host timing only)."""
    if len(steps) < _LEAST:
        return None
    if evidence.timing != "kernel_gpu":
        repeated = find_retransmits(evidence, steps)
        return _repeating(evidence, steps, repeated) if repeated else _slow_since(evidence, steps, late)
    times = whole_transfers(evidence, steps)
    if not len(times):
        return None
    slow = _since(times, steps)
    if slow is not None:
        return _slow_transfers(evidence, steps, times, slow, "in the other steps")
    comms, well, ratio, excess_ns = slower_than_peers(evidence, times, len(steps))
    if not len(comms):
        return None
    always = np.ones(len(steps), dtype=np.bool_)
    return _slow_transfers(evidence, steps, times, _Slow(comms, well, always, ratio, excess_ns), "their like do")


def slow_steps(steps: Steps, times: Transfers, keep: Bools) -> Incident | None:
    """With host timing: the steps in which transfers, with the computing that they waited for, took longer."""
    kept = times.where(keep)
    if not len(kept):
        return None
    series = np.log(_of_all(ratios(kept, len(steps))))
    shift = find_shift(series[:, None])
    if shift is None or shift.high.sum() < max(_LEAST, _LASTING * len(steps)):
        return None
    per_step = np.bincount(kept.step, weights=kept.time_ns, minlength=len(steps)) / np.maximum(
        np.bincount(kept.comm, minlength=len(kept.comm_ids)).astype(bool).sum(), 1
    )
    excess = float(np.median(per_step[np.isfinite(series)])) * (exp(shift.difference) - 1)
    durations = steps.duration_ns[np.isfinite(steps.duration_ns)]
    if excess < (_LONGER_STEPS - 1) * float(np.median(durations)):
        return None
    return Incident(0, np.flatnonzero(shift.high), excess, shift.difference / max(shift.spread, 1e-9), "stretch", None)


def _of_all(series: Floats) -> Floats:
    """The mean of each row, NaN left out."""
    known = np.isfinite(series)
    count = known.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(count > 0, np.where(known, series, 0.0).sum(axis=1) / count, np.nan))


def _since(times: Transfers, steps: Steps) -> _Slow | None:
    """The communicators whose transfers took longer than usual in the same stretch of steps."""
    with np.errstate(divide="ignore"):
        series = np.log(ratios(times, len(steps)))
    shift = find_shift(series)
    if shift is None:
        return None
    slow, well = _shifted_with(series, shift)
    usual = np.bincount(times.comm, weights=times.time_ns, minlength=series.shape[1]) / len(steps)
    ratio = exp(float(np.median(_differences(series[:, slow], shift.high))))
    excess_ns, error_ns = _excess(steps, shift.high, usual[slow] * (ratio - 1))
    durations = steps.duration_ns[np.isfinite(steps.duration_ns)]
    if ratio < LONGER or excess_ns + 2 * error_ns < _LEAST_SHARE * float(np.median(durations)):
        return None
    return _Slow(slow, well, shift.high, ratio, excess_ns)


def _shifted_with(series: Floats, shift: Shift) -> tuple[Int64s, Int64s]:
    """The columns that shift in the same steps, by a comparable amount; and those that surely do not."""
    high = shift.high
    differences = _differences(series, high)
    errors = np.array([_error(column[high], column[~high]) for column in series.T])
    is_slow = (differences > 0.4 * shift.difference) & (differences > _SURE * errors)
    is_slow[shift.column] = True
    is_well = ~is_slow & (differences + 3 * errors < 0.5 * shift.difference)
    return np.flatnonzero(is_slow), np.flatnonzero(is_well)


def _differences(series: Floats, high: Bools) -> Floats:
    """By how much each column is larger in the high steps, in the median; NaN where it is not known in both."""
    known = np.isfinite(series)
    result = np.full(series.shape[1], np.nan)
    both = known[high].any(axis=0) & known[~high].any(axis=0)
    result[both] = np.nanmedian(series[high][:, both], axis=0) - np.nanmedian(series[~high][:, both], axis=0)
    return result


def _error(some: Floats, others: Floats) -> float:
    """The standard error of the difference of two medians; NaN if one of them is not known."""
    counts = int(np.isfinite(some).sum()), int(np.isfinite(others).sum())
    if not min(counts):
        return float("nan")
    return 1.25 * max(spread(others), _QUIET) * float(np.hypot(counts[0] ** -0.5, counts[1] ** -0.5))


def _excess(steps: Steps, high: Bools, each_ns: Floats) -> tuple[float, float]:
    """By how much a high step is longer, as measured, and how far that may be off; no more than transfers explain."""
    known = np.isfinite(steps.duration_ns)
    inside, outside = steps.duration_ns[high & known], steps.duration_ns[~high & known]
    if not len(inside) or not len(outside):
        return float(each_ns.max()), float(each_ns.max())
    longer = float(np.median(inside) - np.median(outside))
    error = _error(inside, outside)
    return float(np.clip(longer, 0.0, each_ns.sum())), error


def _slow_transfers(evidence: Evidence, steps: Steps, times: Transfers, slow: _Slow, than: str) -> Finding:
    chosen = np.isin(times.comm, slow.comms) & slow.steps[times.step] & (times.row >= 0)
    rows = times.row[chosen]
    members = _paths(times, slow)
    link = find_link(members, [times.members[comm] for comm in slow.well.tolist()], evidence.hosts)
    ranks = sorted({rank for one in members for rank in one})
    names = sorted({times.comm_ids[comm] for comm in slow.comms.tolist()})
    groups = [_communicator(evidence, times, slow, name) for name in names]
    numbers = steps.numbers[slow.steps]
    began = f" from step {int(numbers[0])} on" if not slow.steps.all() else ""
    where = _where(link) if link else f"on {plural(len(names), 'communicator')} of ranks {ranks_text(ranks)}"
    well = len({times.comm_ids[comm] for comm in slow.well.tolist()} - set(names))
    return Finding(
        "network",
        "network",
        min(0.95, 0.7 + 0.1 * bool(link) + 0.1 * bool(well) + (slow.ratio - 1) / 10),
        (
            Statement(
                f"transfers {where} take {slow.ratio:.2f} times as long as {than}{began}",
                slow.ratio,
                "ratio",
                tuple(evidence.event_id(int(row)) for row in rows[:4]),
            ),
            Statement("it is the time after the last rank has entered: no rank is waited for"),
            Statement(
                f"{plural(len(names), 'communicator')} of {len(names) + well} that can be told are slow", len(names), ""
            ),
        ),
        groups=tuple([*([link] if link else []), *groups][:_MOST_GROUPS]),
        alternatives=(("pcie_numa", 0.2),),
        waiting_ranks=tuple(ranks),
        affected=Affected(tuple(numbers.tolist()), len(steps)),
        onset_ns=int(evidence.calls.enter_ns[rows].min()) if len(rows) else None,
        onset_step=int(numbers[0]),
        lost_ns=slow.excess_ns * len(numbers),
        summary=(
            f"Collectives {where} take {slow.ratio:.1f} times as long as {than}{began}.",
            "No rank is waited for: the time is lost in the transfer.",
            "Look at link errors, retransmits and the path between these ranks.",
        ),
    )


def _paths(times: Transfers, slow: _Slow) -> list[tuple[int, ...]]:
    """The ranks of the slow communicators; pairs count as one if all of a communicator's pairs are slow."""
    by_name: dict[str, list[tuple[int, ...]]] = {}
    for comm in slow.comms.tolist():
        by_name.setdefault(times.comm_ids[comm], []).append(times.members[comm])
    partly = {times.comm_ids[comm] for comm in slow.well.tolist()}
    found: list[tuple[int, ...]] = []
    for name, mine in by_name.items():
        found += mine if name in partly else [tuple(sorted({rank for ranks in mine for rank in ranks}))]
    return found


def _where(link: Group) -> str:
    return f"between {link.id}" if link.kind == "link" else f"to and from {link.id}"


def _communicator(evidence: Evidence, times: Transfers, slow: _Slow, name: str) -> Group:
    known = evidence.communicators.get(name)
    if known is not None:
        return Group("communicator", name, known.members)
    mine = [times.members[comm] for comm in slow.comms.tolist() if times.comm_ids[comm] == name]
    return Group("communicator", name, tuple(sorted({rank for ranks in mine for rank in ranks})))


def _repeating(evidence: Evidence, steps: Steps, found: Retransmits) -> Finding:
    numbers = steps.numbers[found.steps]
    ranks = tuple(sorted(rank for rank, host in evidence.hosts.items() if host in found.hosts))
    group = Group("link", " - ".join(found.hosts), ranks)
    durations = steps.duration_ns[np.isfinite(steps.duration_ns)]
    hosts = listed(found.hosts)
    return Finding(
        "network",
        "network",
        0.75 if len(found.hosts) == 2 else 0.6,
        (
            Statement(
                f"TCP on {hosts} sends again {found.often:.2g} times per step, else {found.usual:.2g} times",
                found.often,
                "per step",
                found.event_ids,
            ),
            Statement(f"these steps are longer by {duration_text(found.longer_ns)}", found.longer_ns / 1e6, "ms"),
        ),
        groups=(group,) if len(found.hosts) == 2 else tuple(_host(evidence, host) for host in found.hosts),
        alternatives=(("gpu_throttle", 0.1),),
        waiting_ranks=tuple(sorted(evidence.places)),
        affected=Affected(tuple(numbers.tolist()), len(steps)),
        onset_step=int(numbers[0]),
        baseline_step_ns=float(np.median(durations)),
        lost_ns=found.longer_ns * len(numbers),
        summary=(
            f"The network between {hosts} loses packets from step {int(numbers[0])} on, and steps are longer for it.",
            "No rank stands out: all of them wait equally long.",
            "Look at link errors and the path between these hosts.",
        ),
    )


def _host(evidence: Evidence, host: str) -> Group:
    return Group("host", host, tuple(sorted(rank for rank, name in evidence.hosts.items() if name == host)))


def _slow_since(evidence: Evidence, steps: Steps, late: Bools) -> Finding | None:
    """With host timing: all ranks wait longer than they used to, and what for cannot be told."""
    times = transfers(evidence.calls, steps)
    incident = slow_steps(steps, times, ~late[times.step])
    if incident is None:
        return None
    numbers = steps.numbers[incident.steps]
    rows = times.row[np.isin(times.step, incident.steps)]
    return Finding(
        "undecidable",
        "unknown",
        0.3,
        (
            Statement(
                f"from step {int(numbers[0])} on all ranks wait {duration_text(incident.excess)} longer for their "
                "collectives, with nobody late",
                incident.excess / 1e6,
                "ms",
                tuple(evidence.event_id(int(row)) for row in rows[:4]),
            ),
        ),
        alternatives=(("network", 0.4), ("gpu_throttle", 0.4)),
        affected=Affected(tuple(numbers.tolist()), len(steps)),
        onset_ns=int(evidence.calls.enter_ns[rows].min()),
        onset_step=int(numbers[0]),
        period_steps=incident.period,
        lost_ns=incident.excess * len(numbers),
        enable=(
            "GPU timing of collectives (NCCL profiler plugin): kernel durations tell a late GPU from a slow network",
            "GPU counters (clocks, throttle reasons) of every rank",
        ),
        summary=(
            f"All ranks wait longer for their collectives since step {int(numbers[0])}, and no rank enters late.",
            "From the hosts' side a slow GPU and a slow network look the same, so which cannot be told.",
            "Enable GPU timing of collectives or GPU counters.",
        ),
    )
