"""Standstill: who is waited for, when nobody goes on, and what kept that rank."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.analysis.absent import (
    but_for_absent,
    empty_recorders,
    opened_events,
    opened_ns,
    told_ranks,
    too_few_seen,
)
from ingero_mcp.analysis.evidence import Evidence, Sign
from ingero_mcp.analysis.findings import Cause, Culprit, Finding, Statement
from ingero_mcp.analysis.frontier import Frontier, exits, open_calls
from ingero_mcp.analysis.words import capital, plural, verb, who

_FAULT_BEFORE_NS: Final = 60_000_000_000
"""A fault that was reported longer before the last collective was survived."""
_LOST_BEFORE_NS: Final = 10_000_000_000


def stopped(evidence: Evidence, frontier: Frontier) -> tuple[Finding, ...]:
    """Ranks that do not complete what peers have completed, and ranks that never entered: each a finding."""
    stopped: dict[int, tuple[str, int]] = {}
    for comm_id, ranks in frontier.stands.items():
        reached = max((one.next for one in ranks.values() if one.next is not None), default=0)
        for rank, one in ranks.items():
            if one.open is not None and not one.one_sided and one.open < reached:
                stopped.setdefault(rank, (comm_id, one.open))
    few = too_few_seen(evidence, frontier)
    if few:
        return (few,)
    findings = []
    if stopped:
        findings.append(_gpu_stopped(evidence, frontier, stopped))
    silent = sorted(frontier.silent)
    if silent:
        findings.append(_host_silent(evidence, frontier, silent))
    return tuple(but_for_absent(evidence, frontier, one) for one in findings)


def _gpu_stopped(evidence: Evidence, frontier: Frontier, stopped: dict[int, tuple[str, int]]) -> Finding:
    ranks = sorted(stopped)
    statements = [
        Statement(
            f"rank {rank} has not completed collective {seq} of communicator {evidence.name(comm_id)}, "
            "which its peers have completed",
            float(seq),
            "collective",
            tuple(filter(None, (frontier.stands[comm_id][rank].event_id,))),
        )
        for rank, (comm_id, seq) in sorted(stopped.items())
    ]
    return Finding(
        "hang",
        "gpu_fault",
        0.85,
        tuple(statements[:8]),
        culprits=tuple(Culprit(rank) for rank in ranks),
        alternatives=(("network", 0.1),),
        waiting_ranks=tuple(sorted(frontier.waiting - set(ranks))),
        onset_ns=min(
            (ns for rank in ranks if (ns := frontier.stands[stopped[rank][0]][rank].open_ns) is not None), default=None
        ),
        focus_ns=max((frontier.last_ns[rank] for rank in ranks if rank in frontier.last_ns), default=None),
        summary=(
            f"The job hangs: {who(ranks)} stopped completing collectives.",
            "The host went on to enqueue work and peers completed the same collectives, so it is the GPU that stopped.",
            "Look for Xid messages and ECC errors on the host.",
        ),
    )


_STOPPED: Final[dict[Cause, str]] = {
    "early_exit": "the process ended",
    "host_hang": "the host stopped enqueuing",
    "unknown": "whether its host, its GPU or its process stopped is not seen in kernels",
}


def _host_silent(evidence: Evidence, frontier: Frontier, silent: list[int]) -> Finding:
    left = {rank: sign for rank, sign in exits(evidence, frontier.last_ns).items() if rank in silent}
    if left:
        # Who left is waited for by everybody; the others that are silent may wait in ways that were not recorded.
        silent = sorted(left)
    empty, lost = empty_recorders(evidence, frontier, silent), _lost(evidence, frontier, silent)
    # Kernels alone say that none comes any more, and not what does not send any.
    is_blind = evidence.timing == semconv.KERNEL_GPU and not evidence.entries and not left
    cause: Cause = "early_exit" if left else "unknown" if is_blind else "host_hang"
    others: tuple[tuple[Cause, float], ...] = (
        (("host_hang", 0.4), ("gpu_fault", 0.3), ("early_exit", 0.2))
        if is_blind
        else (("host_hang" if left else "early_exit", 0.2), ("unknown", 0.4 if lost else 0.1))
    )
    waiting, many = frontier.waiting, len(silent) > len(frontier.waiting)
    statements = [
        Statement(
            f"{who(silent)} {verb(silent, 'is', 'are')} in no collective, while {who(waiting)} "
            f"{verb(waiting, 'waits', 'wait')} in one that {verb(silent, 'it has', 'they have')} not entered",
            float(len(silent)),
            "ranks",
            (opened_events(frontier, silent)[:4] + opened_events(frontier, waiting)[:4]),
        ),
        *empty,
        *lost,
        *(Statement(f"the process of rank {rank} ended", event_ids=(sign.event_id,)) for rank, sign in left.items()),
    ]
    if many:
        statements.append(
            Statement("which of these ranks keeps the others from entering cannot be told from counts alone")
        )
    which = "which of these cannot be told from counts" if many else _STOPPED[cause]
    last_ns = [frontier.last_ns[rank] for rank in silent if rank in frontier.last_ns]
    return Finding(
        "hang",
        cause,
        0.4 if lost else 0.5 if many or empty else 0.85,
        tuple(statements),
        culprits=tuple(Culprit(rank) for rank in silent),
        alternatives=others,
        waiting_ranks=tuple(sorted(waiting)),
        onset_ns=min(last_ns, default=opened_ns(frontier, waiting)),
        focus_ns=max(last_ns, default=None),
        summary=(
            f"The job hangs: {who(waiting)} {verb(waiting, 'waits', 'wait')} for {who(silent)}.",
            f"{capital(who(silent))} {verb(silent, 'has', 'have')} not entered what the others wait in: {which}.",
            "Look at the Python stacks (py-spy dump) and at the logs.",
        ),
    )


def _lost(evidence: Evidence, frontier: Frontier, silent: list[int]) -> tuple[Statement, ...]:
    """A statement for each node that lost events about when its rank was last seen: the entry may be among them."""
    found = {}
    for rank in silent:
        last_ns = frontier.last_ns.get(rank)
        for gap in evidence.gaps:
            if last_ns is not None and gap.node_id == evidence.node(rank) and gap.end_ns >= last_ns - _LOST_BEFORE_NS:
                found[gap.node_id] = Statement(
                    f"{gap.node_id} lost {plural(gap.lost, 'event')} about then: that rank {rank} entered may be one"
                )
    return tuple(found.values())


def all_entered(evidence: Evidence, frontier: Frontier) -> tuple[Finding, ...]:
    """Nobody is behind and nobody goes on: a GPU or the network, and only a fault that was reported says which."""
    waiting = frontier.waiting
    if not waiting and not open_calls(evidence):
        return ()
    faults = _faults(evidence, frontier)
    ranks = sorted({rank for sign in faults for rank in _ranks_of(evidence, sign)})
    known = sorted(frontier.seen & (told_ranks(evidence, frontier) | frontier.waiting))
    empty = empty_recorders(evidence, frontier)
    inside = _inside(frontier, waiting)
    statement = Statement(
        f"{who(known)} have all entered the last collective, and none goes on"
        if inside == frozenset(known) or not waiting
        else f"{who(waiting)} {verb(waiting, 'waits', 'wait')}, and of nobody it is known that it could go on",
        float(len(known)),
        "ranks",
        tuple(sign.event_id for sign in open_calls(evidence)[:4]) or opened_events(frontier, waiting)[:4],
    )
    reported = [
        Statement(f"{sign.node_id} reported Xid {sign.detail}", event_ids=(sign.event_id,)) for sign in faults[:4]
    ]
    since_ns = opened_ns(frontier, waiting) or max(frontier.last_ns.values(), default=None)
    return (
        Finding(
            "hang",
            "gpu_fault" if faults else "unknown",
            0.7 if faults else 0.3,
            (statement, *empty, *reported),
            culprits=tuple(Culprit(rank) for rank in ranks),
            alternatives=(("network", 0.2),) if faults else (("gpu_fault", 0.4), ("network", 0.3)),
            waiting_ranks=tuple(rank for rank in (sorted(waiting) or known) if rank not in ranks),
            onset_ns=since_ns,
            focus_ns=max(frontier.last_ns.values(), default=None),
            enable=() if faults else ("GPU timing (NCCL profiler plugin) or a Flight Recorder dump of all ranks",),
            summary=(
                f"The job hangs with {plural(len(waiting) or len(known), 'rank')} inside a collective."
                if inside
                else f"The job hangs: {who(waiting or known)} {verb(waiting or known, 'waits', 'wait')}.",
                f"A GPU fault was reported for {who(ranks)}."
                if ranks
                else "Nobody is known to be behind: which GPU or link does not complete cannot be seen from the hosts.",
                "Look for Xid messages, and at power and utilisation of the GPUs.",
            ),
        ),
    )


def _inside(frontier: Frontier, waiting: Collection[int]) -> frozenset[int]:
    """Which of the waiting ranks are known to be in a collective, rather than in a send or receive."""
    return frozenset(
        rank
        for ranks in frontier.stands.values()
        for rank, one in ranks.items()
        if rank in waiting and (one.open is not None or one.ended is None)
    )


def _faults(evidence: Evidence, frontier: Frontier) -> list[Sign]:
    """Faults of GPUs of the job, reported about when it stopped."""
    since_ns = max(frontier.last_ns.values(), default=0) - _FAULT_BEFORE_NS
    return [
        sign
        for sign in evidence.signs
        if sign.kind == "gpu.xid" and sign.at_ns >= since_ns and _ranks_of(evidence, sign)
    ]


def _ranks_of(evidence: Evidence, sign: Sign) -> list[int]:
    if sign.rank is not None:
        return [sign.rank]
    return [rank for rank, place in evidence.places.items() if place.node_id == sign.node_id]
