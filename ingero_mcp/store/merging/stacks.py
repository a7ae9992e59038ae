"""Call stacks of all sources: copies of one under its id, another stack that came with that id under one of its own.

A stack's id is a hash of it where agents made it, so copies differ in how much of it could be given names; the one with
most names is kept. Frames that cannot be copies of each other are other stacks, whose producers count them: those get
an id from their content and remember the one they had.
"""

from __future__ import annotations

import json
from collections import defaultdict
from hashlib import blake2b
from typing import Final

from ingero_mcp import views
from ingero_mcp.store.merging.scratch import CONTEXT, WORK, Scratch
from ingero_mcp.views.view import attribute

STACK_NAMES: Final = f"{WORK}.stack_names"
"""Stacks that have another id in a source, or in the result: part, cluster, old, frames, base, new."""

MERGED_ID: Final = views.STACK.key("merged_id")
FRAMES: Final = f"coalesce({attribute(views.STACK.key('frames'))}, '')"

_Stack = tuple[str | None, str]


def read(scratch: Scratch) -> None:
    """Find the stacks that share an id and are not copies of each other; STACK_NAMES says what they are called."""
    columns = "part INTEGER, cluster VARCHAR, old VARCHAR, frames VARCHAR, base VARCHAR, new VARCHAR"
    scratch.connection.execute(f"CREATE TABLE {STACK_NAMES} ({columns})")
    rows = scratch.connection.execute(
        f"""
        WITH stacks AS (
            SELECT part, cluster_id, stack_id, coalesce({attribute(MERGED_ID)}, stack_id) AS base, {FRAMES} AS frames
            FROM {CONTEXT} WHERE metric_name = '{views.STACK.metric_name}' AND stack_id IS NOT NULL
        ),
        several AS (
            SELECT cluster_id, base FROM stacks GROUP BY ALL
            HAVING count(DISTINCT frames) > 1 OR bool_or(base != stack_id)
        )
        SELECT DISTINCT part, stacks.cluster_id, stack_id, stacks.base, frames FROM stacks JOIN several
            ON several.cluster_id IS NOT DISTINCT FROM stacks.cluster_id AND several.base = stacks.base
        """
    ).fetchall()
    copies: dict[_Stack, set[str]] = defaultdict(set)
    for _, cluster, _, base, frames in rows:
        copies[cluster, base].add(frames)
    ids = {stack: _ids(stack[1], frames) for stack, frames in copies.items()}
    found = [
        (part, cluster, old, frames, base, ids[cluster, base][frames]) for part, cluster, old, base, frames in rows
    ]
    changed = sorted((row for row in found if row[2] != row[4] or row[5] != row[4]), key=repr)
    if changed:
        scratch.connection.executemany(f"INSERT INTO {STACK_NAMES} VALUES (?, ?, ?, ?, ?, ?)", changed)


def _ids(base: str, copies: set[str]) -> dict[str, str]:
    """The id of each copy: it belongs to the first stack that has all its names; the fullest stack keeps `base`."""
    kinds: list[tuple[frozenset[str], str]] = []
    ids = {}
    for frames in sorted(copies, key=lambda frames: (-len(_named(frames)), frames)):
        named = _named(frames)
        known = next((id_ for names, id_ in kinds if named <= names), None)
        if known is None:
            known = blake2b(f"{base}/{frames}".encode(), digest_size=8).hexdigest() if kinds else base
            kinds.append((named, known))
        ids[frames] = known
    return ids


def _named(frames: str) -> frozenset[str]:
    """The frames that have names, and do not only say where they are in memory."""
    try:
        listed = json.loads(frames or "[]")
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(str(frame) for frame in listed if not str(frame).startswith("0x")) if listed else frozenset()
