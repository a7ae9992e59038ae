"""Blame: stragglers become findings, with when it began, how often it comes, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ingero_mcp.analysis.calls import Int64s
from ingero_mcp.analysis.comparison import Comparison
from ingero_mcp.analysis.distinct import distinct
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Affected, Culprit, Finding, Group, Statement
from ingero_mcp.analysis.incident import period_of
from ingero_mcp.analysis.steps import Steps
from ingero_mcp.analysis.stragglers import Straggler
from ingero_mcp.analysis.trend import Trend, trend_of
from ingero_mcp.analysis.words import capital, duration_text, plural, verb, who

_MOST_CERTAIN: Final = 0.97
_LEAST_LOST: Final = 0.1
_TOGETHER: Final = 0.5  # of the steps
_REGULAR: Final = 0.1  # how far distances in time may be from their median to count as regular


def finding(
    together: tuple[Straggler, ...], named: frozenset[int], comparison: Comparison, evidence: Evidence, steps: Steps
) -> Finding:
    """The finding that one incident gives; `named` are the ranks of all incidents."""
    bad = np.unique(np.concatenate([one.steps for one in together]))
    numbers = comparison.matrix.steps
    first = together[0]
    lost_ns = _lost_ns(together, bad, named, comparison)
    runner_up_ns = _runner_up_ns(first, named, comparison)
    period = (first.period if len(together) == 1 else period_of(bad)) or period_of(_worst(first))
    usual_ns, slow_ns = _durations(numbers, bad, steps, comparison, first)
    calls = _calls_of(evidence, steps, first.rank)
    onset = calls.get(int(numbers[bad[0]]))
    worst = int(first.steps[np.nanargmax(first.excess_ns[first.steps])])
    focus = calls.get(int(numbers[worst]))
    ranks = sorted(one.rank for one in together)
    host = _host(evidence, ranks)
    culprits = tuple(
        Culprit(one.rank, one.lateness_ns, len(one.steps) / len(numbers))
        for one in sorted(together, key=lambda one: -one.lost_ns)
    )
    in_a_row = bool(np.all(np.diff(bad) == 1))
    seconds = None if period or in_a_row else _period_seconds(evidence, steps, numbers[bad], calls)
    how_often = _how_often(bad, numbers, period, seconds)
    lateness = duration_text(first.lateness_ns)
    waiting = _waiting(evidence, ranks)
    place = f" on {host}" if host else ""
    confidence = _confidence(first.lost_ns, runner_up_ns, first)
    trend = trend_of(first.excess_ns[first.steps])
    slowdown = slow_ns / usual_ns if usual_ns and slow_ns and usual_ns > 0 else None
    return Finding(
        "straggler",
        "unknown",
        confidence,
        (*_statements(together, comparison, evidence, steps, runner_up_ns), *_when(together, host, trend)),
        culprits=culprits,
        groups=(Group("host", host, tuple(ranks)),) if host and len(ranks) > 1 else (),
        alternatives=(("sequence_imbalance", round((1 - confidence) / 2, 2)),),
        waiting_ranks=waiting,
        affected=Affected(tuple(numbers[bad].tolist()), len(numbers)),
        onset_ns=None if onset is None else int(evidence.calls.enter_ns[onset]),
        onset_step=int(numbers[bad[0]]),
        baseline_step_ns=usual_ns,
        slowdown=slowdown,
        period_steps=period,
        period_seconds=seconds,
        grows=trend is not None and trend.grows,
        lost_ns=lost_ns,
        focus_ns=None if focus is None else int(evidence.calls.enter_ns[focus]),
        summary=(
            f"{capital(who(ranks))}{place} {verb(ranks, 'needs', 'need')} {lateness} more than "
            f"{verb(ranks, 'its', 'their')} peers for {verb(ranks, 'its', 'their')} own work {how_often}.",
            f"{plural(len(waiting), 'rank')} {verb(waiting, 'waits', 'wait')} for {verb(ranks, 'it', 'them')}"
            + (f"; such a step takes {slowdown:.2f} times as long." if slowdown else "."),
            "The evidence says who and when; why is not proven by timing alone.",
        ),
    )


def _lost_ns(together: tuple[Straggler, ...], bad: Int64s, named: frozenset[int], comparison: Comparison) -> float:
    """How much longer the steps took: by the latest of the ranks, beyond who would have been the latest without it."""
    latest_ns = np.zeros(len(comparison.matrix.steps))
    for one in together:
        latest_ns[one.steps] = np.fmax(latest_ns[one.steps], one.excess_ns[one.steps])
    others = ~np.isin(comparison.matrix.ranks, list(named))
    next_ns = np.nan_to_num(comparison.excess_ns[bad][:, others]).max(axis=1, initial=0.0)
    lost_ns = float(np.clip(latest_ns[bad] - next_ns, 0, None).sum())
    # Something is lost where a rank was late at all, though others may have been later just then.
    return max(lost_ns, _LEAST_LOST * max(one.lost_ns for one in together))


def _runner_up_ns(first: Straggler, named: frozenset[int], comparison: Comparison) -> float:
    """By how much the next rank that is not named exceeds its peers in the same steps, in all."""
    others = ~np.isin(comparison.matrix.ranks, list(named))
    inside = comparison.excess_ns[first.steps][:, others]
    return float(np.nansum(np.clip(inside, 0, None), axis=0).max(initial=0.0))


def _worst(one: Straggler) -> Int64s:
    """The steps in which a rank was late by at least half of the most: what recurs is seen best in them."""
    excess = one.excess_ns[one.steps]
    return np.asarray(one.steps[excess >= np.nanmax(excess) / 2])


def _durations(
    numbers: Int64s, bad: Int64s, steps: Steps, comparison: Comparison, first: Straggler
) -> tuple[float | None, float | None]:
    """The usual duration of a step and that of an affected one, in nanoseconds."""
    place = np.searchsorted(steps.numbers, numbers)
    known = (place < len(steps)) & (steps.numbers[np.minimum(place, len(steps) - 1)] == numbers)
    duration = np.where(known, steps.duration_ns[np.minimum(place, len(steps) - 1)], np.nan)
    slow = duration[bad][np.isfinite(duration[bad])]
    slow_ns = float(np.median(slow)) if len(slow) else None
    good = np.delete(duration, bad)
    good = good[np.isfinite(good)]
    if len(good) >= 3:
        return float(np.median(good)), slow_ns
    # No step was without it: what a step would take is what it takes less what its rank needs too much.
    return (None, None) if slow_ns is None else (max(slow_ns - first.lateness_ns, slow_ns * 0.05), slow_ns)


def _calls_of(evidence: Evidence, steps: Steps, rank: int) -> dict[int, int]:
    """A call of a rank in each step, by the step's number: the one that its own work of the step made late."""
    mine = np.flatnonzero((evidence.calls.rank == rank) & (steps.of_call >= 0))
    # Of the calls of a step the one before which the rank did most itself, where that is known; else the last.
    mine = mine[np.lexsort((evidence.calls.enter_ns[mine], evidence.calls.own_ns[mine]))]
    return dict(zip(steps.numbers[steps.of_call[mine]].tolist(), mine.tolist(), strict=True))


def _statements(
    together: tuple[Straggler, ...],
    comparison: Comparison,
    evidence: Evidence,
    steps: Steps,
    runner_up_ns: float,
) -> tuple[Statement, ...]:
    numbers = comparison.matrix.steps
    statements = []
    for one in together[:4]:
        calls = _calls_of(evidence, steps, one.rank)
        shown = [calls.get(number) for number in numbers[one.steps[:4]].tolist()]
        statements.append(
            Statement(
                f"rank {one.rank}: {comparison.matrix.measures} is {duration_text(one.lateness_ns)} above its peers' "
                f"in {len(one.steps)} of {len(numbers)} steps",
                one.lateness_ns / 1e6,
                "ms",
                tuple(evidence.event_id(call) for call in shown if call is not None),
            )
        )
    sigma = max(comparison.sigma_ns.values())
    if sigma > 0:
        spreads = together[0].lateness_ns / sigma
        statements.append(
            Statement(f"that is {spreads:.1f} times the spread of the job ({duration_text(sigma)})", spreads, "spreads")
        )
    if runner_up_ns:
        mean_ns = runner_up_ns / len(together[0].steps)
        statements.append(
            Statement(
                f"the next rank exceeds its peers by {duration_text(mean_ns)} in the mean of these steps",
                mean_ns / 1e6,
                "ms",
            )
        )
    return tuple(statements)


def _when(together: tuple[Straggler, ...], host: str, trend: Trend | None) -> tuple[Statement, ...]:
    """Whether it grows, and whether its ranks are late together or in turn."""
    said = [trend.statement] if trend is not None else []
    if len(together) > 1:
        shared = np.mean([len(np.intersect1d(one.steps, together[0].steps)) / len(one.steps) for one in together[1:]])
        where = f" of {host}" if host else ""
        how = "are late in the same steps" if shared >= _TOGETHER else "take turns: each is late in steps of its own"
        said.append(Statement(f"{plural(len(together), 'rank')}{where} {how}", float(shared), "share of steps"))
    return tuple(said)


def _how_often(bad: Int64s, numbers: Int64s, period: int | None, seconds: float | None) -> str:
    if len(bad) == len(numbers):
        return f"in all {len(numbers)} steps"
    every = f", every {period} steps" if period else f", about every {seconds:.3g} s" if seconds else ""
    since = f", since step {int(numbers[bad[0]])}" if not every and len(bad) > 1 and bad[0] > 0 else ""
    return f"in {len(bad)} of {len(numbers)} steps{every}{since}"


def _period_seconds(evidence: Evidence, steps: Steps, numbers: Int64s, calls: Mapping[int, int]) -> float | None:
    """The period in wall time, if steps recur regularly in time though not in steps."""
    if len(numbers) < 4:
        return None
    last = [calls[number] for number in numbers.tolist() if number in calls]
    times = evidence.calls.enter_ns[last].astype(np.float64)
    distances = np.diff(times)
    durations = steps.duration_ns[np.isfinite(steps.duration_ns)]
    if len(distances) < 3 or not len(durations):
        return None
    usual = float(np.median(distances))
    # A step can only be hit as a whole: what recurs in time is up to a step early or late.
    regular = np.abs(distances - usual) <= max(_REGULAR * usual, 1.1 * float(np.median(durations)))
    return usual / 1e9 if float(np.mean(regular)) >= 0.75 else None


def _confidence(lost_ns: float, runner_up_ns: float, first: Straggler) -> float:
    margin = 1 - runner_up_ns / lost_ns if lost_ns > 0 else 0.0
    certain = 1 - np.exp(-max(first.evidence, 0.0) / 10)
    return round(float(np.clip(margin * (0.5 + 0.5 * certain), 0.05, _MOST_CERTAIN)), 2)


def _waiting(evidence: Evidence, ranks: list[int]) -> tuple[int, ...]:
    """The ranks that wait for the culprits: every other rank of the job that was seen."""
    return tuple(rank for rank in distinct(evidence.calls.rank).tolist() if rank not in ranks)


def _host(evidence: Evidence, ranks: list[int]) -> str:
    hosts = {evidence.node(rank) for rank in ranks}
    host = next(iter(hosts)) if len(hosts) == 1 else None
    return host if host and host != "unknown" else ""
