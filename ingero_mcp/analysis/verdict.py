"""The verdict on a job: which questions are asked, in which order, and what comes first in the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ingero_mcp import semconv
from ingero_mcp.analysis.align import aligned
from ingero_mcp.analysis.blame import finding
from ingero_mcp.analysis.calls import UNKNOWN
from ingero_mcp.analysis.calm import LEAST_RANKS, LEAST_STEPS, healthy, too_little
from ingero_mcp.analysis.clocks import ClockFit, fit
from ingero_mcp.analysis.comparison import Comparison, compare
from ingero_mcp.analysis.counters import slow_gpu
from ingero_mcp.analysis.evidence import Evidence, Matrix
from ingero_mcp.analysis.findings import Finding
from ingero_mcp.analysis.hangs import find_hangs
from ingero_mcp.analysis.imbalance import sequence_imbalance, stage_imbalance
from ingero_mcp.analysis.late import Late, who_is_late
from ingero_mcp.analysis.pairs import undecided
from ingero_mcp.analysis.roles import Roles, find_roles
from ingero_mcp.analysis.steps import Steps, find_steps
from ingero_mcp.analysis.stragglers import Straggler, incidents_of, without
from ingero_mcp.analysis.transfers import find_network, slow_steps, transfers
from ingero_mcp.analysis.work import computing, own_work

_MAJOR: Final = 0.05
_NOTABLE: Final = 0.02
_COSTLY: Final = 0.003  # of the whole time, that slow transfers must have cost


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """What the analysis says of one job: `findings`, the most important first, never empty, and what they rest on.

    `comparison` is the one that told who is late, else that of `own_work`.
    """

    evidence: Evidence
    findings: tuple[Finding, ...]
    steps: Steps
    clocks: ClockFit
    roles: Roles
    own_work: Matrix | None
    comparison: Comparison | None


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """What every question is asked about."""

    evidence: Evidence
    steps: Steps
    roles: Roles
    comparison: Comparison | None
    of_gpus: Comparison | None
    late: tuple[Late, ...]
    clocks: ClockFit

    @property
    def stragglers(self) -> tuple[Straggler, ...]:
        """The ranks that are late, by whatever measure."""
        return tuple(straggler for one in self.late for straggler in one.stragglers)


Question: TypeAlias = Callable[[_Case], tuple[Finding, ...]]


def diagnose(evidence: Evidence) -> Diagnosis:
    """The findings on a job: hangs first, then what cost most; else one that says healthy or undecidable."""
    evidence = aligned(evidence)
    steps = find_steps(evidence.calls)
    clocks = fitted_clocks(evidence)
    roles = find_roles(evidence)
    matrix, recorded = own_work(evidence, steps, roles), computing(evidence, steps)
    comparison = compare(matrix, roles, steps) if matrix is not None else None
    of_gpus = compare(recorded, roles, steps) if recorded is not None else comparison
    late = who_is_late(evidence, steps, roles, comparison, of_gpus)
    case = _Case(evidence, steps, roles, comparison, of_gpus, late, clocks)
    found = _hangs(case) or _without_echoes(case, tuple(one for question in SLOW for one in question(case)))
    found = found or (() if _enough(case) and case.comparison is not None else too_little(evidence, steps))
    whole_ns = float(np.nansum(steps.duration_ns))
    found = _notable(sorted(found, key=lambda one: _importance(one, whole_ns))) or healthy(
        evidence, steps, comparison, clocks
    )
    return Diagnosis(evidence, found, steps, clocks, roles, matrix, late[0].comparison if late else comparison)


def _notable(found: list[Finding]) -> tuple[Finding, ...]:
    """Without further findings that cost next to nothing beside the first; of 0 it is not known what they cost."""
    least_ns = _NOTABLE * found[0].lost_ns if found else 0.0
    return tuple(one for one in found if one.verdict == "hang" or one.lost_ns >= least_ns or not one.lost_ns)


def _without_echoes(case: _Case, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Without ranks that are late just where and when transfers are slow: sends that take long look like work."""
    if case.evidence.timing != semconv.KERNEL_GPU or case.evidence.work is not None:
        return found
    slow = [one for one in found if one.verdict == "network"]
    return tuple(one for one in found if one.verdict != "straggler" or not any(_is_echo(one, of) for of in slow))


def _is_echo(one: Finding, of: Finding) -> bool:
    if one.affected is None or of.affected is None or not {c.rank for c in one.culprits} <= set(of.waiting_ranks):
        return False
    shared = len(set(one.affected.steps) & set(of.affected.steps))
    return shared >= 0.8 * len(one.affected.steps)


def fitted_clocks(evidence: Evidence) -> ClockFit:
    """How far the clocks of the ranks are apart, by collectives, and by sends and receives that name both ends."""
    sends = evidence.sends
    return fit(evidence.calls, sends.calls.where(sends.peer != UNKNOWN))


def _importance(one: Finding, whole_ns: float) -> tuple[bool, bool, bool, float]:
    """Hangs first, then a rank that costs a material share of the time, then what costs most."""
    # A single rank comes before an imbalance of stages: it may be what makes the stages unlike each other.
    is_major = one.verdict in ("straggler", "network") and one.lost_ns >= _MAJOR * whole_ns
    return one.verdict != "hang", not is_major, one.verdict == "undecidable", -one.lost_ns


def _hangs(case: _Case) -> tuple[Finding, ...]:
    return find_hangs(case.evidence)


def _stragglers(case: _Case) -> tuple[Finding, ...]:
    incidents = [(incident, one) for one in case.late for incident in incidents_of(one.stragglers, case.evidence)]
    incidents.sort(key=lambda incident: -sum(straggler.lost_ns for straggler in incident[0]))
    named = frozenset(straggler.rank for straggler in case.stragglers)
    found = [
        (finding(incident, named, told.comparison, case.evidence, case.steps), told.comparison)
        for incident, told in incidents
    ]
    return tuple(undecided(one, comparison, case.evidence) for one, comparison in found)


def _imbalances(case: _Case) -> tuple[Finding, ...]:
    if case.of_gpus is None or case.comparison is None or not _enough(case):
        return ()
    is_sure = case.evidence.work is not None or not case.stragglers
    stage = stage_imbalance(case.of_gpus, without(case.of_gpus, case.stragglers), case.roles, is_sure=is_sure)
    # Hosts are uneven for many reasons; how long sequences are shows on the GPUs.
    timed = case.evidence.timing == semconv.KERNEL_GPU
    healthy = without(case.comparison, case.stragglers)
    uneven = sequence_imbalance(case.comparison, healthy, case.roles) if timed else None
    return tuple(one for one in (stage, uneven) if one is not None)


def _transfers(case: _Case) -> tuple[Finding, ...]:
    if not _enough(case):
        return ()
    bad = [straggler.numbers for straggler in case.stragglers]
    late = np.isin(case.steps.numbers, np.concatenate(bad) if bad else [])
    times = transfers(case.evidence.calls, case.steps)
    slow = slow_steps(case.steps, times, ~late[times.step])
    gpu = slow_gpu(case.evidence, case.steps, slow) if case.evidence.timing != "kernel_gpu" else None
    network = find_network(case.evidence, case.steps, late) if gpu is None else None
    if network is not None and network.lost_ns < _COSTLY * float(np.nansum(case.steps.duration_ns)):
        network = None
    return tuple(one for one in (gpu, network) if one is not None)


def _enough(case: _Case) -> bool:
    ranks = case.comparison.matrix.ranks if case.comparison is not None else np.unique(case.evidence.calls.rank)
    steps = case.comparison.matrix.steps if case.comparison is not None else case.steps.numbers
    return len(ranks) >= LEAST_RANKS and len(steps) >= LEAST_STEPS


SLOW: Final[tuple[Question, ...]] = (_stragglers, _imbalances, _transfers)
