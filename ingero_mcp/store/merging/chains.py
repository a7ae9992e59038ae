"""Causal chains of all sources: each once, under a name of its own, with evidence that points to the events of the
result.

Agents name chains after what was slow; old ones number them from 1. So several chains of a node can have one name:
the one whose content has the least digest keeps it, the digest of another is added to its name. What a watch kept
(it says when it was updated) is written anew under one name on purpose.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import views
from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.store.merging.events import CHAIN_NAMES, IDENTITY, KEPT, known_again
from ingero_mcp.store.merging.scratch import COLUMNS, CONTENT, CONTEXT, EVENTS, WORK, Scratch
from ingero_mcp.store.schema import CONTEXT as CONTEXT_ROWS

_DIGITS: Final = 12
_EVIDENCE: Final = views.CHAIN.key("evidence")
_UPDATED: Final = views.CHAIN.key(views.CHAIN.updated)

Row = dict[str, Any]


@dataclass(slots=True)
class _Chain:
    """A row of a source; `base` is its name without the digest that an earlier merge added."""

    part: int
    row: Row
    facts: Row
    base: str | None
    digest: str


def read(scratch: Scratch) -> list[_Chain]:
    """All chains of the sources, named; where a name changes, CHAIN_NAMES says so."""
    table = scratch.connection.sql(
        f"SELECT part, {', '.join(COLUMNS)} FROM {CONTEXT} WHERE metric_name = '{views.CHAIN.metric_name}'"
    ).to_arrow_table()
    chains = [_chain(row) for row in table.to_pylist()]
    names = _names(chains)
    scratch.connection.execute(
        f"CREATE TABLE {CHAIN_NAMES} (part INTEGER, cluster VARCHAR, old VARCHAR, base VARCHAR, new VARCHAR)"
    )
    changes: dict[tuple[int, str | None, str], tuple[str, str]] = {}
    for chain in chains:
        old, base = chain.row["causal_chain_id"], chain.base
        if old is None or base is None:
            continue
        new = names[_key(chain)]
        if old != base or old != new:
            key = (chain.part, chain.row["cluster_id"], old)
            changes[key] = min(changes.get(key, (base, new)), (base, new))
        chain.row["causal_chain_id"] = new
    if changes:
        rows = [(*key, *names) for key, names in sorted(changes.items(), key=repr)]
        scratch.connection.executemany(f"INSERT INTO {CHAIN_NAMES} VALUES (?, ?, ?, ?, ?)", rows)
    return chains


def write(scratch: Scratch, chains: list[_Chain]) -> None:
    """Write them into the new database, their evidence rewritten. Call it when the events have their numbers."""
    now = _numbers_now(scratch, {(chain.part, event_id) for chain in chains for event_id in _cited(chain)})
    kept: dict[str, Row] = {}
    for chain in chains:
        if any(now.get((chain.part, event_id), event_id) != event_id for event_id in _cited(chain)):
            chain.row["attrs_json"] = _with_evidence(chain, now)
        content = json.dumps([chain.row[name] for name in CONTENT])
        if content not in kept or (chain.row["event_seq"] or 0) < (kept[content]["event_seq"] or 0):
            kept[content] = chain.row
    rows = pa.Table.from_pylist([kept[content] for content in sorted(kept)], ARROW_SCHEMA)
    scratch.connection.register("incoming", rows)
    scratch.connection.execute(f"INSERT INTO {CONTEXT_ROWS} SELECT * FROM incoming")
    scratch.connection.unregister("incoming")


def _chain(row: Row) -> _Chain:
    part = row.pop("part")
    facts = _facts(row["attrs_json"])
    name = row["causal_chain_id"]
    said = [row[column] for column in CONTENT if column not in ("causal_chain_id", "attrs_json")]
    # Not its evidence: that is rewritten, and the name must stay.
    said.append({fact: value for fact, value in facts.items() if fact != _EVIDENCE})
    digest = blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=_DIGITS // 2).hexdigest()
    return _Chain(part, row, facts, None if name is None else name.removesuffix(f"~{digest}"), digest)


def _facts(attributes: str | None) -> Row:
    try:
        facts = json.loads(attributes or "{}")
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _key(chain: _Chain) -> tuple[str | None, str | None, str]:
    return chain.row["cluster_id"], chain.base, "" if _UPDATED in chain.facts else chain.digest


def _names(chains: list[_Chain]) -> dict[tuple[str | None, str | None, str], str]:
    """The name of each chain by its key: that of the first of several has nothing added."""
    digests: dict[tuple[str | None, str | None], set[str]] = defaultdict(set)
    for chain in chains:
        cluster, base, digest = _key(chain)
        digests[cluster, base].add(digest)
    return {
        (cluster, base, digest): base if digest == min(found) else f"{base}~{digest}"
        for (cluster, base), found in digests.items()
        if base is not None
        for digest in found
    }


def _cited(chain: _Chain) -> list[str]:
    evidence = chain.facts.get(_EVIDENCE)
    if not isinstance(evidence, list):
        return []
    lists = [fact.get("event_ids") for fact in evidence if isinstance(fact, dict)]
    return [event_id for ids in lists if isinstance(ids, list) for event_id in ids if isinstance(event_id, str)]


def _with_evidence(chain: _Chain, now: dict[tuple[int, str], str]) -> str:
    for fact in chain.facts[_EVIDENCE]:
        if isinstance(fact, dict) and isinstance(fact.get("event_ids"), list):
            fact["event_ids"] = [
                now.get((chain.part, event_id), event_id) if isinstance(event_id, str) else event_id
                for event_id in fact["event_ids"]
            ]
    return json.dumps(chain.facts, separators=(",", ":"))  # escaped: half of a surrogate pair is no character


def _numbers_now(scratch: Scratch, cited: set[tuple[int, str]]) -> dict[tuple[int, str], str]:
    """What the events that a source cites are called in the result; those that it does not have are left out."""
    if not cited:
        return {}
    parted = [(part, event_id, *event_id.rpartition(":")[::2]) for part, event_id in sorted(cited)]
    wanted = [
        {"part": part, "event_id": event_id, "node": node, "seq": int(seq)}
        for part, event_id, node, seq in parted
        if seq.isascii() and seq.isdigit() and len(seq) < 19
    ]
    fields: list[tuple[str, pa.DataType]] = [
        ("part", pa.int32()), ("event_id", pa.string()), ("node", pa.string()), ("seq", pa.int64())
    ]  # fmt: skip
    scratch.connection.register("cited", pa.Table.from_pylist(wanted, pa.schema(fields)))
    scratch.connection.execute(f"CREATE TABLE {WORK}.cited AS SELECT * FROM cited")
    scratch.connection.unregister("cited")
    rows = (
        f"(SELECT * FROM {EVENTS} AS all_rows SEMI JOIN {WORK}.cited AS cited ON cited.part = all_rows.part "
        "AND cited.node = all_rows.node_id AND cited.seq = all_rows.event_seq)"
    )
    same = " AND ".join(f"kept.{name} IS NOT DISTINCT FROM found.{name}" for name in (*IDENTITY, "origin"))
    found = scratch.connection.execute(
        f"""
        SELECT cited.part, cited.event_id, min(kept.seq)
        FROM ({known_again(rows)}) AS found
        JOIN {WORK}.cited AS cited
            ON cited.part = found.part AND cited.node = found.node_id AND cited.seq = found.event_seq
        JOIN {KEPT} AS kept ON {same}
        GROUP BY ALL
        """
    ).fetchall()
    return {(part, event_id): f"{event_id.rpartition(':')[0]}:{seq}" for part, event_id, seq in found}
