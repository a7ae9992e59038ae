"""Absent: what it means that nothing was seen of a rank, and what is known of one whose recorder is empty."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Culprit, Finding, Group, Statement
from ingero_mcp.analysis.frontier import Frontier, Stand
from ingero_mcp.analysis.words import capital, verb, who


def too_few_seen(evidence: Evidence, frontier: Frontier) -> Finding | None:
    """Undecidable, if so many ranks left no trace that any of them may be the one."""
    unseen = _unseen(frontier)
    if not unseen or len(unseen) < len(frontier.seen):
        return None
    waiting, missing = frontier.waiting, _traces(evidence, unseen)
    comm_id = max(frontier.absent, key=lambda one: len(frontier.absent[one]))
    name = evidence.name(comm_id)
    statement = Statement(
        f"{len(frontier.seen)} of {len(frontier.seen) + len(unseen)} ranks were seen; nothing is known of "
        f"{who(unseen)}",
        float(len(unseen)),
        "ranks",
        opened_events(frontier, waiting)[:4],
    )
    return Finding(
        "undecidable",
        "unknown",
        0.2,
        (statement, *empty_recorders(evidence, frontier)),
        groups=(Group("communicator", name, frontier.absent[comm_id]),),
        alternatives=(("host_hang", 0.3), ("gpu_fault", 0.3), ("early_exit", 0.2)),
        waiting_ranks=tuple(sorted(waiting)),
        onset_ns=opened_ns(frontier, waiting),
        enable=(missing,),
        summary=(
            f"{capital(who(waiting))} {verb(waiting, 'waits', 'wait')}.",
            f"For which rank cannot be told: nothing was seen of {who(unseen)}.",
            f"Get {missing} and ask again.",
        ),
    )


def left_no_trace(evidence: Evidence, frontier: Frontier) -> tuple[Finding, ...]:
    """The seen members all wait in the same collective; the only one without evidence of entry was not seen at all."""
    for comm_id, absent in frontier.absent.items():
        ranks = {rank: one for rank, one in frontier.stands.get(comm_id, {}).items() if rank in frontier.waiting}
        if not ranks:
            continue
        name, present, missing = evidence.name(comm_id), sorted(ranks), _traces(evidence, absent)
        idle = sorted(dump.rank for dump in evidence.dumps if dump.open == 0 and dump.rank not in frontier.waiting)
        if idle:
            return (_either(evidence, frontier, idle, absent),)
        what = "dump" if evidence.dumps else "trace"
        statement = Statement(
            f"{who(present)} {verb(present, 'waits', 'wait')} in communicator {name}; of its "
            f"{len(present) + len(absent)} members {len(present)} were seen, and nothing shows that {who(absent)} "
            "entered",
            float(len(absent)),
            "ranks",
            tuple(filter(None, (ranks[rank].event_id for rank in present[:4]))),
        )
        return (
            Finding(
                "hang",
                "host_hang",
                0.5,
                (statement, *empty_recorders(evidence, frontier)),
                culprits=tuple(Culprit(rank) for rank in absent),
                alternatives=(("early_exit", 0.4), ("gpu_fault", 0.1)),
                waiting_ranks=tuple(sorted(frontier.waiting)),
                onset_ns=opened_ns(frontier, present),
                enable=(missing,),
                summary=(
                    f"The job hangs: {who(present)} {verb(present, 'waits', 'wait')} in communicator {name}.",
                    f"{capital(who(absent))} left no {what}, the only {verb(absent, 'member', 'members')} without "
                    f"evidence of entry: likely {verb(absent, 'the one', 'those')} waited for.",
                    "A rank that crashed or sits in teardown cannot dump: look at its log first.",
                ),
            ),
        )
    return ()


def _either(evidence: Evidence, frontier: Frontier, idle: list[int], absent: Collection[int]) -> Finding:
    """Undecidable: ranks that are in no collective may be waited for, or those that nobody saw."""
    waiting = frontier.waiting
    alone = verb(idle, "itself", "themselves")
    return Finding(
        "undecidable",
        "host_hang",
        0.3,
        (
            Statement(f"the recorder of {who(idle)} holds no open collective, while {who(waiting)} wait"),
            Statement(f"nothing was seen of {who(absent)}"),
        ),
        groups=(Group("job", "in no collective", tuple(idle)), Group("job", "not seen", tuple(absent))),
        alternatives=(("early_exit", 0.3), ("gpu_fault", 0.2)),
        waiting_ranks=tuple(sorted(waiting)),
        onset_ns=opened_ns(frontier, waiting),
        enable=(_traces(evidence, absent),),
        summary=(
            f"{capital(who(waiting))} {verb(waiting, 'waits', 'wait')}.",
            f"The others wait either for {who(idle)}, in no collective {alone}, or for {who(absent)}, never seen.",
            f"Get {_traces(evidence, absent)} and ask again.",
        ),
    )


def but_for_absent(evidence: Evidence, frontier: Frontier, found: Finding) -> Finding:
    """The finding with what it cannot rule out: a rank that nobody saw may be at fault too."""
    unseen = _unseen(frontier)
    if not unseen:
        return found
    statement = Statement(f"nothing was seen of {who(unseen)}: {verb(unseen, 'it', 'they')} may be at fault too")
    return replace(
        found,
        statements=(*found.statements, statement),
        confidence=min(found.confidence, 0.7),
        enable=(*found.enable, _traces(evidence, unseen)),
    )


def empty_recorders(
    evidence: Evidence, frontier: Frontier, among: Collection[int] | None = None
) -> tuple[Statement, ...]:
    """A statement about recorders without entries: what is known of their ranks nevertheless."""
    empty = {dump.rank for dump in evidence.dumps if not dump.entries and (among is None or dump.rank in among)}
    told = told_ranks(evidence, frontier)
    counted, unknown = sorted(empty & told), sorted(empty - told)
    found = []
    if counted and among is None:
        found.append(
            f"the recorder of {who(counted)} is empty: how far {verb(counted, 'it', 'they')} had come is known from "
            "counters only"
        )
    if unknown:
        found.append(f"the recorder of {who(unknown)} is empty: it says nothing of what {who(unknown)} entered")
    return tuple(map(Statement, found))


def told_ranks(evidence: Evidence, frontier: Frontier) -> set[int]:
    """The ranks of which it is known how far they had come, from entries or from counters."""
    return {rank for ranks in frontier.stands.values() for rank, one in ranks.items() if one.entered is not None} | {
        rank for rank in frontier.waiting if rank in frontier.last_ns
    }


def _unseen(frontier: Frontier) -> tuple[int, ...]:
    """Members of which nothing was seen, of the communicators in which ranks wait."""
    waited_in = [comm for comm, ranks in frontier.stands.items() if not frontier.waiting.isdisjoint(ranks)]
    return tuple(sorted({rank for comm in waited_in for rank in frontier.absent.get(comm, ())}))


def _traces(evidence: Evidence, ranks: Collection[int]) -> str:
    """What to fetch to know of the ranks."""
    return f"the {'dumps' if evidence.dumps else 'probe or the traces'} of {who(ranks)}"


def opened_events(frontier: Frontier, ranks: Collection[int]) -> tuple[str, ...]:
    """An event of each rank: of what it waits in, else of what it entered last."""
    found: dict[int, Stand] = {}
    for stands in frontier.stands.values():
        for rank, stand in stands.items():
            if rank in ranks and stand.event_id and (rank not in found or found[rank].open is None):
                found[rank] = stand
    return tuple(found[rank].event_id for rank in sorted(found))


def opened_ns(frontier: Frontier, ranks: Collection[int]) -> int | None:
    """When the first of the ranks entered a collective that does not end."""
    times = [
        one.open_ns
        for stands in frontier.stands.values()
        for rank, one in stands.items()
        if rank in ranks and one.open_ns is not None
    ]
    return min(times, default=None)
