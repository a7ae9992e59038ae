"""A process that calls the GPU much less often than before, though it lives: something keeps it from asking."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Final

from ingero_mcp.analysis.chains.cause import Trouble
from ingero_mcp.analysis.chains.causes import TOGETHER, causes_of, in_short, root_cause, severity_of
from ingero_mcp.analysis.chains.chain import JOINED_NS, Chain, Line
from ingero_mcp.analysis.chains.record import BLOCK_NS, Rate, Record, Span, first_ids, named
from ingero_mcp.analysis.findings import Statement
from ingero_mcp.analysis.words import duration_text, listed

_LEFT: Final = 0.6  # of the usual rate, at most
_LEAST_USUAL_PER_S: Final = 1.0
_LEAST_CALLS: Final = 30  # before the drop
_LEAST_BEFORE: Final = 3  # bins; one, where a recorder counts by the minute
_LOOK_BACK_NS: Final = 300 * 10**9
_LEAST_NS: Final = 10 * 10**9


@dataclass(frozen=True, slots=True)
class _Drop:
    """A process, the stretch in which it called less, its rates per second there and before, and its last call."""

    rate: Rate
    span: Span
    per_s: float
    usual_per_s: float

    @property
    def share(self) -> float:
        return 1 - self.per_s / self.usual_per_s

    @property
    def lost_ns(self) -> int:
        return int(self.share * (self.span.end_ns - self.span.start_ns))


def throughput_drop(record: Record) -> Iterator[Chain]:
    """Processes of a node that call less in the same time are one chain; none without a cause in sight."""
    drops = [drop for pid in sorted(record.callers()) for drop in _drops(record, pid)]
    for group in _together(drops):
        span = Span(min(one.span.start_ns for one in group), max(one.span.end_ns for one in group))
        pids = frozenset(one.rate.pid for one in group)
        trouble = Trouble(span, pids, sum(one.lost_ns for one in group))
        causes = causes_of(record, trouble)
        if not causes or not any(cause.raises or cause.strength for cause in causes):
            continue
        worst = max(group, key=lambda one: one.lost_ns)
        who = listed([named(one.rate.process, one.rate.pid) for one in sorted(group, key=lambda one: -one.lost_ns)])
        fell = f"{worst.per_s:.2g}/s against {worst.usual_per_s:.3g}/s before"
        last = Statement(
            f"{worst.rate.count} calls of {named(worst.rate.process, worst.rate.pid)} from then on: {fell}",
            worst.per_s,
            "calls/s",
            first_ids([worst.rate.event_id]),
        )
        yield Chain(
            cluster_id=record.cluster_id,
            node_id=record.node_id,
            kind="throughput_drop",
            descriptor="drop-gpu-calls",
            start_ns=span.start_ns,
            end_ns=span.end_ns,
            severity=severity_of(causes, worst.share),
            summary=f"GPU calls of {who} dropped {worst.share:.0%} ({fell}): {in_short(causes)}",
            root_cause=f"{root_cause(causes)} ({TOGETHER})",
            explanation=f"For {duration_text(span.end_ns - span.start_ns)} {who} called the GPU {fell}, while it "
            "lived. That fits a job which waits for its data or has no CPU to run on.",
            recommendations=tuple(dict.fromkeys(advice for cause in causes for advice in cause.advice)),
            op="",
            timeline=(
                *(line for cause in causes for line in cause.lines),
                Line("CUDA", "calls", f"dropped {worst.share:.0%} ({fell})", span.end_ns - span.start_ns),
            ),
            evidence=(last, *(statement for cause in causes for statement in cause.statements)),
            job_id=record.job_id,
        )


def _drops(record: Record, pid: int) -> Iterator[_Drop]:
    """The stretches in which one process called less than in the five minutes before."""
    life = record.lives[pid]
    calm = _Calm()
    low: list[Rate] = []
    for rate in sorted((one for one in record.rates if one.pid == pid), key=lambda one: one.span.start_ns):
        if rate.span.start_ns >= life.end_ns:
            break
        calm.forget(low[0].span.start_ns if low else rate.span.start_ns)
        usual = calm.per_s()
        if usual is not None and _per_s(rate, life) < _LEFT * usual:
            low.append(rate)
            continue
        yield from _drop(low, calm, life)
        low = []
        calm.add(rate)
    yield from _drop(low, calm, life)


class _Calm:
    """The bins before a drop, of the last five minutes, of which the process lived at least half."""

    def __init__(self) -> None:
        self._near: deque[tuple[Rate, float]] = deque()
        self._count = 0
        self.event_id = ""

    def add(self, rate: Rate) -> None:
        self.event_id = rate.event_id or self.event_id
        if 2 * (rate.span.end_ns - rate.span.start_ns) >= rate.width_ns:
            self._near.append((rate, rate.count / rate.span.seconds))
            self._count += rate.count

    def forget(self, before_ns: int) -> None:
        while self._near and self._near[0][0].span.end_ns <= before_ns - _LOOK_BACK_NS:
            self._count -= self._near.popleft()[0].count

    def per_s(self) -> float | None:
        """The usual rate; None of too little."""
        near = self._near
        least = 1 if near and near[-1][0].width_ns >= BLOCK_NS else _LEAST_BEFORE
        if len(near) < least or self._count < _LEAST_CALLS:
            return None
        return median(per_s for _, per_s in near)


def _per_s(rate: Rate, life: Span) -> float:
    seconds = Span(rate.span.start_ns, min(rate.span.end_ns, life.end_ns)).seconds
    return rate.count / seconds if seconds else 0.0


def _drop(low: list[Rate], calm: _Calm, life: Span) -> Iterator[_Drop]:
    usual = calm.per_s() if low else None
    if usual is None or usual < _LEAST_USUAL_PER_S:
        return
    # Of a minute that was only counted, what is known best is when the last call that was kept ended.
    start_ns = low[0].last_ns if low[0].last_ns and len(low) == 1 else low[0].span.start_ns
    span = Span(start_ns, min(low[-1].span.end_ns, life.end_ns))
    if span.end_ns - span.start_ns < _LEAST_NS:
        return
    count = sum(one.count for one in low)
    event_id = next((one.event_id for one in reversed(low) if one.event_id), calm.event_id)
    whole = Rate(low[0].pid, low[0].process, span, low[0].width_ns, count, low[-1].last_ns, event_id)
    yield _Drop(whole, span, count / Span(low[0].span.start_ns, span.end_ns).seconds, usual)


def _together(drops: list[_Drop]) -> list[list[_Drop]]:
    groups: list[list[_Drop]] = []
    for drop in sorted(drops, key=lambda one: one.span.start_ns):
        if groups and drop.span.start_ns <= max(one.span.end_ns for one in groups[-1]) + JOINED_NS:
            groups[-1].append(drop)
        else:
            groups.append([drop])
    return groups
