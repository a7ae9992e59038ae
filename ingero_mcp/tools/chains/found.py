"""Causal chains of nodes: those that were stored and those that are computed from what was recorded, one row each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import BaseModel, Field

from ingero_mcp.analysis.chains.chain import Chain, in_order
from ingero_mcp.analysis.chains.checked import checked
from ingero_mcp.analysis.chains.rows import evidence_of, timeline_of
from ingero_mcp.analysis.chains.rules import find_chains
from ingero_mcp.analysis.chains.stored import Stored, continued, grouped, is_about, is_same
from ingero_mcp.analysis.severity import rank_of
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.calls import rows
from ingero_mcp.tools.chains.records import Records, read_records
from ingero_mcp.tools.scope import equal
from ingero_mcp.windows import Window, iso

MOST_STORED: Final = 2_000
"""Stored chains that are read of a window, the latest; whoever sends events can send any number."""

_NAMES: Final = ("cluster_id", "node_id", "chain_id", "kind", "severity", "op", "job_id", "cause")
_TEXTS: Final = ("summary", "root_cause", "explanation")
_LISTS: Final = ("recommendations", "timeline", "evidence")
_NUMBERS: Final = ("detected_ns", "start_ns", "p99_us", "p50_us", "tail_ratio", "rank", "confidence", "updated_ns")
_DAY_NS: Final = 86_400_000_000_000
_LATEST_NS: Final = 9_000_000_000_000_000_000
# Of a chain that somebody else wrote no end is believed that is more than a day after it was detected.
_LAST: Final = f"least(detected_ns, {_LATEST_NS}) + {_DAY_NS}"
_END: Final = f"CASE WHEN updated_ns IS NULL AND end_ns > {_LAST} THEN {_LAST} ELSE end_ns END"
# Recorded texts may be of any length; a list that is too long to be one is left out, since half of it cannot be read.
_COLUMNS: Final = ", ".join(
    (
        *(f"left({name}, 300) AS {name}" for name in _NAMES),
        *(f"left({name}, 2000) AS {name}" for name in _TEXTS),
        *(f"CASE WHEN length({name}) <= 4000 THEN {name} END AS {name}" for name in _LISTS),
        *_NUMBERS,
        f"{_END} AS end_ns",
    )
)


class ShownChain(BaseModel):
    """A chain as answers show it."""

    node: str
    cluster_id: str
    severity: str
    kind: str | None
    origin: Annotated[
        Literal["stored", "computed"],
        Field(description="computed from the events by this server now, or stored by an agent or by a server earlier"),
    ]
    summary: str
    root_cause: str
    start: Annotated[
        str | None, Field(description="ISO 8601 on the node's clock; of a stored one when it was detected")
    ]
    end: str | None
    op: str | None
    p99_us: float | None
    p50_us: float | None
    tail_ratio: float | None
    usual_us: Annotated[float | None, Field(description="median of the operation in the rest of the recording")]
    stored_as: Annotated[str | None, Field(description="what an agent stored about the same trouble, in its words")]
    checked: Annotated[str | None, Field(description="what the events say of a stored chain that was not computed")]
    count: Annotated[int, Field(description="how many stored rows this one stands for")]
    explanation: str
    recommendations: list[str]
    timeline: list[dict[str, Any]]
    evidence: list[dict[str, Any]]
    chain_id: str
    start_ns: str
    end_ns: str | None
    job_id: str | None
    rank: int | None
    cause: str | None
    confidence: float | None


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains of a window by severity and time; `nodes` counts the nodes with events or chains in it."""

    window: Window | None
    shown: tuple[ShownChain, ...]
    nodes: int
    notes: tuple[str, ...] = ()


def chains(call: Call, window_text: str | None, cluster_id: str | None = None) -> Chains:
    """All chains of the window, the worst first. Nothing recorded is no data, which is not the same as no chains."""
    window = _window(call, window_text)
    if window is None:
        return Chains(None, (), 0, ("no data: the database has neither events nor chains",))
    stored = _stored_rows(call, window, cluster_id)
    records = read_records(call, window, cluster_id)
    shown = _combined(records, window, grouped(map(_stored, stored)))
    # What the events show comes before what an agent once said.
    shown.sort(
        key=lambda one: (rank_of(one.severity), one.origin != "computed", int(one.start_ns), one.node, one.chain_id)
    )
    nodes = {one.node for one in shown}
    nodes |= {one.node_id for one in records.nodes if one.seen.touches(window.start_ns, window.end_ns)}
    if not nodes:
        everything = call.window(None)
        has = f"; the database has events from {everything.absolute.replace('/', ' to ')}" if everything else ""
        return Chains(window, (), 0, (f"no data in this window{has}",))
    notes = records.notes
    if len(stored) == MOST_STORED:
        notes = (*notes, f"of the stored chains of this window only {MOST_STORED} were read; narrow the window")
    if not shown:
        notes = (*notes, f"no chains: nothing of their kinds shows in what {len(nodes)} nodes recorded in this window")
    return Chains(window, tuple(shown), len(nodes), notes)


def computed_chains(call: Call, window: Window, cluster_id: str | None = None) -> tuple[Chain, ...]:
    """The chains that what was recorded shows, the worst first, as a server may keep them
    (`analysis.chains.rows.context_batch`). One that was kept before keeps its start, and so its id."""
    return _computed(read_records(call, window, cluster_id), window, stored_chains(call, window, cluster_id))


def _computed(records: Records, window: Window, known: list[Stored]) -> tuple[Chain, ...]:
    found = [chain for record in records.nodes for chain in find_chains(record)]
    here = [one for one in found if one.end_ns >= window.start_ns and one.start_ns < window.end_ns]
    return continued(in_order(here), known)


def _combined(records: Records, window: Window, known: list[Stored]) -> list[ShownChain]:
    """One row for each chain: what was stored about the same trouble is told with the one that is computed."""
    found = _computed(records, window, known)
    left = [one for one in known if not any(is_same(one, chain) for chain in found)]
    shown = []
    for chain in found:
        about = [one for one in left if not one.is_ours and is_about(one, chain)]
        left = [one for one in left if one not in about]
        shown.append(_of_computed(chain, about))
    of_node = {(one.cluster_id, one.node_id): one for one in records.nodes}
    return shown + [_of_stored(one, checked(one, of_node.get((one.cluster_id, one.node_id)))) for one in left]


def _window(call: Call, text: str | None) -> Window | None:
    """The window that is meant; over all, also the time of chains that are older or newer than every event."""
    window = call.window(text)
    if text is not None and window is not None and window.text != "all":
        return window
    first, last = call.read("SELECT min(coalesce(start_ns, detected_ns)), max(detected_ns) FROM chains").rows[0]
    if not isinstance(first, int) or not isinstance(last, int):
        return window
    if window is None:
        return Window(first, last + 1, "all")
    return Window(min(window.start_ns, first), max(window.end_ns, last + 1), "all")


def stored_chains(call: Call, window: Window, cluster_id: str | None = None) -> list[Stored]:
    """What the view `chains` has of the window, each incident once; of very many those of servers, then the latest."""
    return grouped(map(_stored, _stored_rows(call, window, cluster_id)))


def _stored_rows(call: Call, window: Window, cluster_id: str | None) -> list[dict[str, Any]]:
    cluster = "true" if cluster_id is None else equal("cluster_id", cluster_id)
    return rows(
        call,
        f"SELECT {_COLUMNS} FROM chains WHERE {cluster} AND coalesce({_END}, detected_ns) >= {window.start_ns} "
        f"AND coalesce(start_ns, detected_ns) < {window.end_ns} ORDER BY updated_ns IS NULL, detected_ns DESC "
        f"LIMIT {MOST_STORED}",
    )


def _stored(row: dict[str, Any]) -> Stored:
    return Stored(
        cluster_id=row["cluster_id"] or "unknown",
        node_id=row["node_id"] or "unknown",
        chain_id=row["chain_id"] or "",
        kind=row["kind"],
        severity=row["severity"] or "",
        summary=row["summary"] or "",
        root_cause=row["root_cause"] or "",
        explanation=row["explanation"] or "",
        recommendations=row["recommendations"] or "",
        op=row["op"] or "",
        p99_us=row["p99_us"],
        p50_us=row["p50_us"],
        tail_ratio=_finite(row["tail_ratio"]),
        timeline=row["timeline"] or "",
        evidence=row["evidence"] or "",
        detected_ns=row["detected_ns"] or 0,
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        rank=row["rank"],
        job_id=row["job_id"],
        cause=row["cause"],
        confidence=_finite(row["confidence"]),
        is_ours=row["updated_ns"] is not None,
    )


def _of_computed(chain: Chain, about: list[Stored]) -> ShownChain:
    said = "; ".join(f"{one.severity} {one.summary}" + (f" (x{one.count})" if one.count > 1 else "") for one in about)
    return ShownChain(
        node=chain.node_id,
        cluster_id=chain.cluster_id,
        severity=chain.severity,
        kind=chain.kind,
        origin="computed",
        summary=chain.summary,
        root_cause=chain.root_cause,
        start=iso(chain.start_ns),
        end=iso(chain.end_ns),
        op=chain.op or None,
        p99_us=_us(chain.p99_ns),
        p50_us=_us(chain.p50_ns),
        tail_ratio=None if chain.tail_ratio is None else round(chain.tail_ratio, 1),
        usual_us=_us(chain.usual_ns),
        stored_as=said or None,
        checked=None,
        count=sum(one.count for one in about),
        explanation=chain.explanation,
        recommendations=list(chain.recommendations),
        timeline=timeline_of(chain),
        evidence=evidence_of(chain),
        chain_id=chain.chain_id,
        start_ns=str(chain.start_ns),
        end_ns=str(chain.end_ns),
        job_id=chain.job_id,
        rank=None,
        cause=None,
        confidence=None,
    )


def _of_stored(one: Stored, said: str | None) -> ShownChain:
    begin = one.start_ns if one.start_ns is not None else one.first_ns
    end = one.end_ns if one.end_ns is not None else (one.last_ns if one.count > 1 else None)
    return ShownChain(
        node=one.node_id,
        cluster_id=one.cluster_id,
        severity=one.severity,
        kind=one.kind,
        origin="stored",
        summary=one.summary,
        root_cause=one.root_cause,
        start=iso(begin) if begin > 0 else None,
        end=None if end is None else iso(end),
        op=one.op or None,
        p99_us=one.p99_us,
        p50_us=one.p50_us,
        tail_ratio=one.tail_ratio,
        usual_us=None,
        stored_as=None,
        checked=said,
        count=one.count,
        explanation=one.explanation,
        recommendations=[text for text in _listed(one.recommendations) if isinstance(text, str)],
        timeline=[line for line in _listed(one.timeline) if isinstance(line, dict)],
        evidence=[fact for fact in _listed(one.evidence) if isinstance(fact, dict)],
        chain_id=one.chain_id,
        start_ns=str(begin),
        end_ns=None if end is None else str(end),
        job_id=one.job_id,
        rank=one.rank,
        cause=one.cause,
        confidence=one.confidence,
    )


def _us(ns: int | None) -> float | None:
    return None if ns is None else float(f"{ns / 1000:.4g}")


def _listed(text: str) -> list[Any]:
    """A JSON array; nothing for any other text, nor for one that is no strict JSON or no Unicode."""
    try:
        found = json.loads(text or "[]", parse_constant=_not_strict)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _not_strict(constant: str) -> NoReturn:
    raise ValueError(constant)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
