"""The numbers of collectives and messages: the n-th on a communicator, the n-th between two ranks of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ingero_mcp.synth.scenario.layout import KINDS, Layout
from ingero_mcp.synth.scenario.timeline import Op

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Numbered:
    """An op on communicators: which one each of its ranks calls on (an index into Layout.comms), the rank inside it,
    the other end of a message (a rank inside it, else -1), and the number of the call: `place` + step * `per_step`.
    `channel` is equal for calls that are counted together."""

    op: Op
    comm: Int64s
    comm_rank: Int64s
    peer: int
    place: int
    per_step: int
    channel: tuple[str, int]


def number(ops: list[Op], layout: Layout) -> list[Numbered]:
    """The ops that are calls on communicators, numbered; those of groups of one rank are left out."""
    ranks_in = {kind: _ranks_in(layout, kind) for kind in KINDS}
    seen: Counter[tuple[str, int]] = Counter()
    found: list[Numbered] = []
    for op in ops:
        if op.kind not in ("collective", "send", "recv"):
            continue
        kind, _, direction = op.group.partition("/")
        comm = layout.comm_of[kind][op.ranks]  # type: ignore[index]
        if (comm < 0).any():
            continue
        stage = layout.place(int(op.ranks[0]))[0]
        peer = -1
        channel = (kind, stage if kind in ("dp", "tp") else 0)
        if direction:
            peer = stage + (1 if (direction == "forward") == (op.kind == "send") else -1)
            channel = (f"{op.kind}/{direction}", stage)
        inside = ranks_in[kind][op.ranks]  # type: ignore[index]
        found.append(Numbered(op, comm, inside, peer, seen[channel], 0, channel))
        seen[channel] += 1
    return [replace(one, per_step=seen[one.channel]) for one in found]


def _ranks_in(layout: Layout, kind: str) -> Int64s:
    inside = np.full(layout.world, -1, np.int64)
    for comm in layout.comms:
        if comm.kind == kind:
            inside[list(comm.ranks)] = np.arange(len(comm.ranks))
    return inside
