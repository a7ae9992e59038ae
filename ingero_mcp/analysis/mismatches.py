"""Mismatches: the members of a communicator called different collectives at the same position."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from ingero_mcp.analysis.calls import UNKNOWN, Calls, Int64s
from ingero_mcp.analysis.evidence import Evidence
from ingero_mcp.analysis.findings import Culprit, Finding, Group, Statement
from ingero_mcp.analysis.frontier import COMPLETED, UNEVEN, Frontier
from ingero_mcp.analysis.paths import latest_lives
from ingero_mcp.analysis.words import capital, verb, who

_MAJORITY: Final = Statement("the majority is taken to be right: it says who differs, not who has the bug")
_RUN_ON: Final = 1024
"""Hosts enqueue this many collectives at most beyond the one that does not end."""

Kind: TypeAlias = tuple[str, int | None, str | None]
"""What a rank called: operation, elements or bytes (None where they may differ), datatype."""


Called: TypeAlias = dict[int, tuple[Kind, str]]
"""By rank, what it called at one position, and the event of that."""


def mismatched(evidence: Evidence, frontier: Frontier) -> tuple[Finding, ...]:
    """A finding for the first position at which members of a communicator called different things, if there is one."""
    found = _recorded(evidence) if evidence.entries else _seen(evidence)
    for (comm_id, seq), called in found.items():
        kinds: dict[Kind, list[int]] = defaultdict(list)
        for rank, kind in _comparable(called).items():
            kinds[kind].append(rank)
        if len(kinds) > 1:
            event_ids = {rank: event_id for rank, (_, event_id) in called.items()}
            return (_mismatch(evidence, frontier, comm_id, seq, kinds, event_ids),)
    return ()


def _recorded(evidence: Evidence) -> dict[tuple[str, int], Called]:
    """What every rank called at each position that is open for some rank, the lowest positions first."""
    unfinished = {(entry.comm_id, entry.seq) for entry in evidence.entries if entry.state != COMPLETED}
    found: dict[tuple[str, int], Called] = defaultdict(dict)
    for entry in evidence.entries:
        if (entry.comm_id, entry.seq) in unfinished:
            kind = (entry.op, entry.count, entry.datatype)
            found[entry.comm_id, entry.seq][entry.rank] = (kind, entry.event_id)
    return dict(sorted(found.items(), key=lambda item: item[0][1]))


def _comparable(called: Called) -> dict[int, Kind]:
    """The same without what may differ, and without what not all of them say."""
    kinds = {rank: kind for rank, (kind, _) in called.items()}
    uneven = any(op in UNEVEN for op, _, _ in kinds.values())
    sized = not uneven and all(count is not None for _, count, _ in kinds.values())
    typed = all(datatype is not None for _, _, datatype in kinds.values())
    return {
        rank: (op, count if sized else None, datatype if typed else None)
        for rank, (op, count, datatype) in kinds.items()
    }


def _seen(evidence: Evidence) -> dict[tuple[str, int], Called]:
    """The first position in each communicator whose calls differ, if hosts may have gone on from there until now."""
    positions = np.flatnonzero(latest_lives(evidence.calls))
    if not len(positions):
        return {}
    calls = _sized_alike(evidence.calls.where(positions))
    _, size = np.unique(calls.bytes, return_inverse=True)
    kind = calls.op * (size.max() + 1) + size
    low, high = _least(calls.collective, kind), -_least(calls.collective, -kind)
    differs = (low != high)[calls.collective]
    found: dict[tuple[str, int], Called] = {}
    for comm in np.unique(calls.comm[differs]).tolist():
        mine = calls.comm == comm
        seq = int(calls.seq[mine & differs].min())
        if _may_be_it(calls.seq[mine], calls.seq[mine & differs], seq):
            found[calls.comm_ids[comm], seq] = {
                int(calls.rank[place]): (_kind(calls, place), evidence.event_id(int(positions[place])))
                for place in np.flatnonzero(mine & (calls.seq == seq)).tolist()
            }
    return found


def _sized_alike(calls: Calls) -> Calls:
    """The calls, those of a collective without sizes if one of them may have another size or does not say it."""
    uneven = np.isin(calls.op, [number for number, op in enumerate(calls.ops) if op in UNEVEN])
    unsized = np.zeros(int(calls.collective.max()) + 1, dtype=np.bool_)
    unsized[calls.collective[uneven | (calls.bytes == UNKNOWN)]] = True
    return replace(calls, bytes=np.where(unsized[calls.collective], UNKNOWN, calls.bytes))


def _least(collective: Int64s, values: Int64s) -> Int64s:
    least = np.full(int(collective.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, collective, values)
    return least


def _may_be_it(seqs: Int64s, different: Int64s, first: int) -> bool:
    # Where calls differ nearly everywhere the numbers of the ranks mean different things.
    lasting = int(seqs.max()) - first <= _RUN_ON
    before = int((np.unique(seqs) < first).sum())
    return lasting and len(np.unique(different)) <= max(before, 2)


def _kind(calls: Calls, place: int) -> Kind:
    size = int(calls.bytes[place])
    return calls.ops[int(calls.op[place])], None if size == UNKNOWN else size, None


def _mismatch(
    evidence: Evidence,
    frontier: Frontier,
    comm_id: str,
    seq: int,
    kinds: dict[Kind, list[int]],
    event_ids: Mapping[int, str],
) -> Finding:
    by_size = sorted(kinds.items(), key=lambda item: (len(item[1]), item[1]))
    culprits = _fewer(kinds, len(frontier.absent.get(comm_id, ())))
    stands = frontier.stands.get(comm_id, {})
    statements = tuple(
        Statement(
            f"at position {seq} {who(ranks)} called {_kind_text(kind)}",
            float(len(ranks)),
            "ranks",
            tuple(event_ids[rank] for rank in ranks[:4]),
        )
        for kind, ranks in by_size
    )
    name = evidence.name(comm_id)
    said = (
        f"{who(culprits)} {verb(culprits, 'differs', 'differ')} from the majority"
        if culprits
        else "no kind has a majority of the members, so which of them is wrong cannot be told"
    )
    others = sorted({rank for ranks in kinds.values() for rank in ranks} - set(culprits))
    last_ns = [frontier.last_ns[rank] for rank in culprits or others if rank in frontier.last_ns]
    return Finding(
        "hang",
        "mismatched_collective",
        0.9 if culprits else 0.6,
        (*statements, *([_MAJORITY] if culprits else [])),
        culprits=tuple(Culprit(rank) for rank in culprits),
        groups=tuple(Group("communicator", f"{name}: {_kind_text(kind)}", tuple(ranks)) for kind, ranks in by_size),
        waiting_ranks=tuple(others),
        onset_ns=min((stands[rank].open_ns or 0 for rank in culprits or others if rank in stands), default=0) or None,
        focus_ns=max(last_ns, default=None),
        summary=(
            f"Communicator {name} hangs at collective {seq}: its members called different things there.",
            f"{capital(said)}.",
            "Look for control flow or a batch size that depends on the rank.",
        ),
    )


def _fewer(kinds: Mapping[Kind, list[int]], unseen: int) -> list[int]:
    """The ranks outside the largest group, if it stays the largest whatever those called of whom nothing was seen."""
    sizes = Counts({kind: len(ranks) for kind, ranks in kinds.items()})
    (largest, most), (_, second) = sizes.most_common(2)
    if second + unseen >= most:
        return []
    return sorted(rank for kind, ranks in kinds.items() if kind != largest for rank in ranks)


def _kind_text(kind: Kind) -> str:
    op, count, datatype = kind
    return " ".join(filter(None, (op, None if count is None else f"of {count}", datatype)))
