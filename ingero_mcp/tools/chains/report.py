"""Causal chains as a text for people."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from ingero_mcp.analysis.severity import SEVERITIES
from ingero_mcp.analysis.words import duration_text, plural
from ingero_mcp.cells import escaped
from ingero_mcp.tools.answer import Finished, Range
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.found import Chains, ShownChain, chains

_MOST: Final = 50


class AskedChains(BaseModel):
    """Which chains are asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    window: str | None = None
    cluster_id: str | None = None


def told(call: Call, asked: AskedChains) -> Finished:
    """The chains as data (`chains`, `nodes`, `window`, `notes`) and as a report."""
    found = chains(call, asked.window, asked.cluster_id)
    structured = {
        "chains": [one.model_dump(mode="json") for one in found.shown],
        "nodes": found.nodes,
        "window": Range.of(found.window).model_dump(mode="json") if found.window else None,
        "notes": list(found.notes),
    }
    return Finished(structured, report(found))


def report(found: Chains) -> str:
    """INCIDENT REPORT: one block for each chain, the worst first; recorded text is escaped."""
    if not found.nodes:
        return "\n".join(["INCIDENT REPORT: no data", *(f"note: {note}" for note in found.notes)])
    count = Counter(one.severity for one in found.shown)
    levels = [*SEVERITIES, *sorted(count.keys() - set(SEVERITIES))]
    of_which = ", ".join(f"{count[level]} {escaped(level)}" for level in levels if count[level])
    head = f"INCIDENT REPORT: {plural(len(found.shown), 'causal chain')}" + (f" ({of_which})" if of_which else "")
    blocks = [_block(one) for one in found.shown[:_MOST]]
    more = [f"{len(found.shown) - _MOST} more chains; see --json"] if len(found.shown) > _MOST else []
    return "\n\n".join([head, *blocks, *more, *(f"note: {escaped(note)}" for note in found.notes)])


def _block(one: ShownChain) -> str:
    lines = [f"[{one.severity}] [{one.node}] {one.summary}", f"  when: {_when(one)}; {_origin(one)}"]
    lines += [f"  stored by the agent: {one.stored_as}"] if one.stored_as else []
    lines += [f"  {one.checked}"] if one.checked else []
    lines += ["  timeline:"] if one.timeline else []
    lines += [f"    [{_text(line, 'layer'):<6}] {_text(line, 'detail')}{_took(line)}" for line in one.timeline[:10]]
    if one.origin == "computed":
        lines += [f"  evidence: {_text(fact, 'statement')}{_ids(fact)}" for fact in one.evidence[:6]]
    lines += [f"  root cause: {one.root_cause}"] if one.root_cause else []
    lines += [f"  do: {text}" for text in one.recommendations[:4]]
    return "\n".join(map(escaped, lines))


def _when(one: ShownChain) -> str:
    if one.start is None:
        return "not known"
    return f"{one.start} to {one.end}" if one.end and one.end != one.start else one.start


def _origin(one: ShownChain) -> str:
    if one.origin == "computed":
        return "computed from the events"
    times = f", {one.count} times" if one.count > 1 else ""
    return f"as stored{times}, not computed again"


def _took(line: dict[str, Any]) -> str:
    took = line.get("dur_us")
    return f" ({duration_text(took * 1000)})" if isinstance(took, int | float) and took > 0 else ""


def _ids(fact: dict[str, Any]) -> str:
    ids = fact.get("event_ids")
    return f" [{', '.join(map(str, ids[:4]))}]" if isinstance(ids, list) and ids else ""


def _text(line: dict[str, Any], name: str) -> str:
    value = line.get(name)
    return value if isinstance(value, str) else ""
