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
from ingero_mcp.analysis.clocks import ClockFit, fit
from ingero_mcp.analysis.comparison import Comparison, compare
from ingero_mcp.analysis.counters import slow_gpu
from ingero_mcp.analysis.evidence import Evidence, Matrix, Sign
from ingero_mcp.analysis.findings import Finding, Statement
from ingero_mcp.analysis.gpu_work import outside_of_all
from ingero_mcp.analysis.hangs import find_hangs
from ingero_mcp.analysis.idle import is_paused
from ingero_mcp.analysis.imbalance import sequence_imbalance, stage_imbalance
from ingero_mcp.analysis.roles import Roles, find_roles
from ingero_mcp.analysis.skew import skewed
from ingero_mcp.analysis.steps import Steps, find_steps
from ingero_mcp.analysis.stragglers import Straggler, find_stragglers, incidents_of, without
from ingero_mcp.analysis.transfers import find_network, slow_steps, transfers
from ingero_mcp.analysis.words import duration_text, plural
from ingero_mcp.analysis.work import computing, own_work

_LEAST_STEPS: Final = 4
_LEAST_RANKS: Final = 2
_MAJOR: Final = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """What the analysis says of one job: `findings`, the most important first, never empty, and what they rest on."""

    evidence: Evidence
    findings: tuple[Finding, ...]
    steps: Steps
    clocks: ClockFit
    comparison: Comparison | None


@dataclass(frozen=True, slots=True, eq=False)
class Late:
    """Ranks that are late, and the comparison that told it."""

    stragglers: tuple[Straggler, ...]
    comparison: Comparison


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
    matrix, recorded = own_work(evidence, steps, roles), computing(evidence)
    comparison = compare(matrix, roles, steps) if matrix is not None else None
    of_gpus = compare(recorded, roles, steps) if recorded is not None else comparison
    late = _who_is_late(evidence, steps, roles, comparison, of_gpus)
    case = _Case(evidence, steps, roles, comparison, of_gpus, late, clocks)
    found = _hangs(case) or _without_echoes(case, tuple(one for question in SLOW for one in question(case)))
    found = found or _too_little(case)
    whole_ns = float(np.nansum(steps.duration_ns))
    found = tuple(sorted(found, key=lambda one: _importance(one, whole_ns))) or _healthy(case)
    return Diagnosis(evidence, found, steps, clocks, late[0].comparison if late else comparison)


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


def _who_is_late(
    evidence: Evidence, steps: Steps, roles: Roles, comparison: Comparison | None, of_gpus: Comparison | None
) -> tuple[Late, ...]:
    """The ranks that are late. Where computing was recorded it comes first; then who leaves its GPU without work."""
    if comparison is None or of_gpus is None or not _is_enough(of_gpus.matrix):
        return ()
    hosts = evidence.hosts
    late = [Late(find_stragglers(of_gpus, roles, hosts), of_gpus)]
    idle = outside_of_all(evidence, steps, roles)
    if idle is not None and _is_enough(idle):
        told = {one.rank for one in late[0].stragglers}
        pauses = compare(idle, roles, steps)
        paused = find_stragglers(pauses, roles, hosts)
        late.append(
            Late(tuple(one for one in paused if one.rank not in told and is_paused(one, evidence, steps)), pauses)
        )
    return tuple(one for one in late if one.stragglers)


def _is_enough(matrix: Matrix) -> bool:
    return len(matrix.ranks) >= _LEAST_RANKS and len(matrix.steps) >= _LEAST_STEPS


def _importance(one: Finding, whole_ns: float) -> tuple[bool, bool, bool, float]:
    """Hangs first, then a rank that costs a material share of the time, then what costs most."""
    # A single rank comes before an imbalance of stages: it may be what makes the stages unlike each other.
    is_major = one.verdict == "straggler" and one.lost_ns >= _MAJOR * whole_ns
    return one.verdict != "hang", not is_major, one.verdict == "undecidable", -one.lost_ns


def _hangs(case: _Case) -> tuple[Finding, ...]:
    return find_hangs(case.evidence)


def _stragglers(case: _Case) -> tuple[Finding, ...]:
    incidents = [(incident, one) for one in case.late for incident in incidents_of(one.stragglers, case.evidence)]
    incidents.sort(key=lambda incident: -sum(straggler.lost_ns for straggler in incident[0]))
    found = []
    for place, (incident, told) in enumerate(incidents):
        others = [straggler.lost_ns for other, _ in incidents[place + 1 :] for straggler in other]
        found.append(finding(incident, max(others, default=0.0), told.comparison, case.evidence, case.steps))
    return tuple(found)


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
    return tuple(one for one in (gpu, network) if one is not None)


def _too_little(case: _Case) -> tuple[Finding, ...]:
    """Undecidable, with what is missing."""
    evidence = case.evidence
    if _enough(case) and case.comparison is not None:
        return ()
    if evidence.dumps or _flags(evidence):
        return ()
    ranks = len(np.unique(evidence.calls.rank))
    if ranks < _LEAST_RANKS:
        missing = f"collectives of {plural(ranks, 'rank')} were seen, and a rank needs peers to be compared with"
        enable: tuple[str, ...] = ("the collectives of the other ranks: the probe on every host, or their traces",)
    elif len(case.steps) < _LEAST_STEPS:
        missing = f"only {plural(len(case.steps), 'step')} were seen, too few to tell what is usual"
        enable = ("a longer window",)
    else:
        missing = "collectives were only enqueued: nothing says how long a rank worked or waited"
        enable = (
            "the probe's own-time attributes (ingero.cpu_ns, blocked_ns, runq_ns) or synchronize calls",
            "GPU timing of collectives (NCCL profiler plugin)",
        )
    return (
        Finding(
            "undecidable",
            "unknown",
            0.1,
            (Statement(missing),),
            enable=enable,
            summary=(
                "Whether a rank holds the others up cannot be told.",
                f"{missing[0].upper()}{missing[1:]}.",
                f"What would tell: {enable[0]}.",
            ),
        ),
    )


def _healthy(case: _Case) -> tuple[Finding, ...]:
    comparison, evidence = case.comparison, case.evidence
    statements = []
    if comparison is not None:
        sigma = max(comparison.sigma_ns.values(), default=0.0)
        statements.append(
            Statement(
                f"own work of {len(comparison.matrix.ranks)} ranks differs by {duration_text(sigma)} from step to step "
                f"(one spread), and nobody's by more than chance",
                sigma / 1e6,
                "ms",
            )
        )
    shift = skewed(evidence, case.clocks)
    statements += [shift] if shift else []
    flags = _flags(evidence)
    if flags:
        statements.append(
            Statement(
                f"none of {len(flags)} ranks is flagged as hanging", event_ids=tuple(s.event_id for s in flags[:4])
            )
        )
    if evidence.dumps:
        statements.append(
            Statement(f"the recorders of {len(evidence.dumps)} ranks hold no collective that is waited for")
        )
    durations = case.steps.duration_ns[np.isfinite(case.steps.duration_ns)]
    usual = float(np.median(durations)) if len(durations) else None
    how_long = f" of {duration_text(usual)}" if usual else ""
    return (
        Finding(
            "healthy",
            "clock_skew" if shift else "none",
            0.8 if comparison is not None else 0.5,
            tuple(statements),
            baseline_step_ns=usual,
            summary=(
                f"Nothing holds this job up: {plural(len(case.steps), 'step')}{how_long}, no rank out of line."
                if comparison is not None
                else "Nothing that was recorded says that this job is held up.",
                "The clocks of its hosts are apart, which looks like lateness and is none."
                if shift
                else "Differences between ranks are within their usual spread.",
                "If it is slower than before, compare with an earlier window.",
            ),
        ),
    )


def _flags(evidence: Evidence) -> list[Sign]:
    return [sign for sign in evidence.signs if sign.kind == semconv.HANG_FLAG]


def _enough(case: _Case) -> bool:
    ranks = case.comparison.matrix.ranks if case.comparison is not None else np.unique(case.evidence.calls.rank)
    steps = case.comparison.matrix.steps if case.comparison is not None else case.steps.numbers
    return len(ranks) >= _LEAST_RANKS and len(steps) >= _LEAST_STEPS


SLOW: Final[tuple[Question, ...]] = (_stragglers, _imbalances, _transfers)
