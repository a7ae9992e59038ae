"""The events of all sources: each once, under a number that no other event of its node has.

An event is known again by what it says and by the number that its producer gave it. Where several events of a node
have one number, the one whose content has the least digest keeps it. The others get numbers that follow from their
content, and remember their own, so that they are known again when the result is merged in its turn.
"""

from __future__ import annotations

from typing import Final

from ingero_mcp import semconv
from ingero_mcp.errors import StoreError
from ingero_mcp.store.merging.scratch import COLUMNS, CONTENT, EVENTS, WORK, Scratch
from ingero_mcp.store.merging.stacks import STACK_NAMES
from ingero_mcp.store.schema import ROWS
from ingero_mcp.views import AGENT_ID

KEPT: Final = f"{WORK}.kept"
"""The events of the result: content, `origin` (the number from the producer, if any), `wanted` and `seq` (the number
before and now), `chain_now` and `stack_now` (how the causal chain and the stack are called now)."""

CHAIN_NAMES: Final = f"{WORK}.chain_names"
"""Chains that have another name in a source, or in the result: part, cluster, old, base, new."""

IDENTITY: Final = tuple(name for name in CONTENT if name != "process")
"""What tells events apart, besides the number from the producer. The name of a process is often known from elsewhere,
and one file has it where another has not."""

_GIVEN: Final = 1 << 51
"""From here upward numbers are not a producer's count: those of this module, of importers and of servers."""
_MOST_TRIES: Final = 64
_MARK: Final = f'{{"{semconv.MERGED_SEQ}":'
_MARKED: Final = f"^{_MARK}([0-9]{{1,16}})[,}}]".replace("{", "[{]", 1).replace(".", "[.]")
_CHAIN_KEY: Final = f"'{semconv.CAUSAL_CHAIN_ID}\":'"  # ends a key with or without the prefix "ingero."
_PLAIN: Final = tuple(name for name in CONTENT if name not in ("causal_chain_id", "stack_id", "attrs_json"))

_UNMARKED: Final = f"""
    CASE WHEN mark = '' THEN body
         WHEN body = '{_MARK}' || mark || '}}' THEN '{{}}'
         ELSE '{{' || substr(body, {len(_MARK)} + length(mark) + 2) END
"""
_ORIGIN: Final = f"""
    CASE WHEN mark != '' THEN CAST(mark AS BIGINT)
         WHEN event_seq < {_GIVEN} AND NOT contains(body, '"{AGENT_ID}":') THEN event_seq END
"""


def _renamed(attributes: str, old: str, new: str) -> str:
    """SQL: attributes in which the chain `old` is called `new`."""
    return f"replace({attributes}, {_CHAIN_KEY} || to_json({old}), {_CHAIN_KEY} || to_json({new}))"


def known_again(rows: str = EVENTS) -> str:
    """SQL: rows of the sources with their content as it was before any merge, and the number from their producer."""
    return f"""
        SELECT rows.part, event_seq, {", ".join(_PLAIN)}, coalesce(names.base, causal_chain_id) AS causal_chain_id,
               CASE WHEN names.base IS NULL OR names.base = names.old THEN attrs
                    ELSE {_renamed("attrs", "names.old", "names.base")} END AS attrs_json,
               coalesce(names.new, causal_chain_id) AS chain_now, coalesce(stacks.base, stack_id) AS stack_id,
               coalesce(stacks.new, stack_id) AS stack_now, origin
        FROM (
            SELECT *, {_UNMARKED} AS attrs, {_ORIGIN} AS origin
            FROM (
                SELECT *, coalesce(attrs_json, '{{}}') AS body,
                       regexp_extract(coalesce(attrs_json, ''), '{_MARKED}', 1) AS mark
                FROM {rows}
            )
        ) AS rows
        LEFT JOIN {CHAIN_NAMES} AS names ON names.part = rows.part AND names.old = rows.causal_chain_id
            AND names.cluster IS NOT DISTINCT FROM rows.cluster_id
        LEFT JOIN (
            SELECT part, cluster, old, min(base) AS base, min(new) AS new FROM {STACK_NAMES} GROUP BY ALL
        ) AS stacks ON stacks.part = rows.part AND stacks.old = rows.stack_id
            AND stacks.cluster IS NOT DISTINCT FROM rows.cluster_id
    """


def keep(scratch: Scratch) -> None:
    """Find the events of the result and number them.

    Events without a number from their producer are as many as the source with most of that content has.
    """
    identity = ", ".join(IDENTITY)
    rest = "max(process) AS process, min(chain_now) AS chain_now, min(stack_now) AS stack_now"
    scratch.connection.execute(
        f"""
        CREATE TABLE {KEPT} AS
        WITH found AS NOT MATERIALIZED ({known_again()}),
        counted AS (
            SELECT {identity}, {rest}, origin, 1 AS copies, [origin] AS seqs
            FROM found WHERE origin IS NOT NULL GROUP BY {identity}, origin
            UNION ALL
            SELECT {identity}, {rest}, NULL, max(copies), list_sort(list_distinct(flatten(list(seqs))))
            FROM (
                SELECT {identity}, {rest}, count(*) AS copies,
                       list(event_seq) FILTER (event_seq IS NOT NULL) AS seqs
                FROM found WHERE origin IS NULL GROUP BY part, {identity}
            )
            GROUP BY {identity}
        ),
        copied AS (SELECT *, unnest(range(1, copies + 1)) AS copy FROM counted)
        SELECT CAST(row_number() OVER () AS BIGINT) AS number, {identity}, process, chain_now, stack_now, origin, copy,
               seqs[copy] AS wanted, seqs[copy] AS seq, 0 AS tries
        FROM copied
        """
    )
    _number(scratch)


def _number(scratch: Scratch) -> None:
    """Give other numbers to those events whose number another one of the node keeps, until each has its own."""
    said = ", ".join(f"{name} := kept.{name}" for name in (*IDENTITY, "origin", "copy"))
    for _ in range(_MOST_TRIES):
        scratch.connection.execute(
            f"""
            CREATE OR REPLACE TABLE {WORK}.moved AS
            WITH shared AS (SELECT node_id, seq FROM {KEPT} GROUP BY ALL HAVING count(*) > 1 OR seq IS NULL),
            told AS (
                SELECT number, kept.node_id, kept.seq, tries,
                       md5(CAST(to_json(struct_pack({said})) AS VARCHAR)) AS digest
                FROM {KEPT} AS kept JOIN shared
                    ON shared.node_id IS NOT DISTINCT FROM kept.node_id AND shared.seq IS NOT DISTINCT FROM kept.seq
            ),
            placed AS (
                SELECT *, row_number() OVER (PARTITION BY node_id, seq ORDER BY tries, digest) AS place FROM told
            )
            SELECT number, CAST(md5_number_lower(digest || '/' || tries) % {_GIVEN} AS BIGINT) + {_GIVEN} AS seq
            FROM placed WHERE seq IS NULL OR place > 1
            """
        )
        if not scratch.one(f"SELECT count(*) FROM {WORK}.moved"):
            return
        scratch.connection.execute(
            f"UPDATE {KEPT} AS kept SET seq = moved.seq, tries = tries + 1 FROM {WORK}.moved AS moved "
            "WHERE moved.number = kept.number"
        )
    raise StoreError("the events cannot be numbered: too many of a node say the same")


def write(scratch: Scratch) -> None:
    """Write the events into the new database, in the order of their times."""
    marked = f"'{_MARK}' || origin || CASE WHEN attrs = '{{}}' THEN '}}' ELSE ',' || substr(attrs, 2) END"
    renamed = (
        "CASE WHEN chain_now IS NOT DISTINCT FROM causal_chain_id THEN attrs_json "
        f"ELSE {_renamed('attrs_json', 'causal_chain_id', 'chain_now')} END"
    )
    values = {name: name for name in COLUMNS} | {
        "event_seq": "seq",
        "causal_chain_id": "chain_now",
        "stack_id": "stack_now",
        "attrs_json": f"CASE WHEN origin != seq THEN {marked} ELSE attrs END",
    }
    scratch.connection.execute(
        f"INSERT INTO {ROWS} SELECT {', '.join(values[name] for name in COLUMNS)} "
        f"FROM (SELECT *, {renamed} AS attrs FROM {KEPT}) ORDER BY timestamp_ns NULLS FIRST, node_id, seq"
    )


def renumbered(scratch: Scratch) -> int:
    """How many events have another number than in their source."""
    return scratch.one(f"SELECT count(*) FROM {KEPT} WHERE wanted != seq")
