"""The network: transfers that take longer than they should, on the communicators that cross a link, with nobody late.

With GPU timing the time of a transfer does not depend on who was late (`transfer_times`), so that communicators can be
compared with their own past, and with others of their like. With host timing it also holds what the GPUs still had to
compute (`host_waits`): a slow GPU looks the same, and only what the network says of itself (`retransmits`) can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Bools, Floats, Int64s
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Affected, Finding, Group, Statement
from ingero_mcp.analysis.host_waits import longer_waits, slow_steps
from ingero_mcp.analysis.links import find_link
from ingero_mcp.analysis.retransmits import find_retransmits, lossy_network
from ingero_mcp.analysis.robust import spread
from ingero_mcp.analysis.shifts import Shift, find_shift
from ingero_mcp.analysis.slow_peers import slower_than_peers
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.transfer_times import Transfers, ratios, transfers, whole_transfers
from ingero_mcp.analysis.words import plural, ranks_text

__all__ = ["find_network", "slow_steps", "transfers"]

LONGER: Final = 1.08
"""Transfers that take so many times as long as in the other steps of the job are slow."""

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
        return lossy_network(evidence, steps, repeated) if repeated else longer_waits(evidence, steps, late)
    times = whole_transfers(evidence, steps)
    if not len(times):
        return None
    slow = _since(times, steps)
    if slow is not None:
        # What is slow and costs nothing, since something else takes as long, holds nobody up.
        return _slow_transfers(evidence, steps, times, slow, "in the other steps") if slow.excess_ns > 0 else None
    comms, well, ratio, excess_ns = slower_than_peers(evidence, times, len(steps))
    if not len(comms):
        return None
    always = np.ones(len(steps), dtype=np.bool_)
    return _slow_transfers(evidence, steps, times, _Slow(comms, well, always, ratio, excess_ns), "their like do")


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
    if ratio < LONGER:
        return None
    costs = excess_ns + 2 * error_ns > _LEAST_SHARE * float(np.median(durations))
    return _Slow(slow, well, shift.high, ratio, max(excess_ns, 1.0) if costs else 0.0)


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
