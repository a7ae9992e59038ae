"""A job that runs while it is watched, in simulated time: what its nodes send arrives a little after it happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp.notice import Notice
from ingero_mcp.store import Store
from ingero_mcp.turns import Cancellation
from ingero_mcp.watch.watcher import Watcher

S = 1_000_000_000
EXPORT_NS = S
"""Nodes send once a second."""


@dataclass(slots=True)
class Live:
    """Feeds events to a store and lets a watcher look every `every_s` seconds of simulated time."""

    store: Store
    events: pa.Table
    every_s: int = 5
    now_ns: int = 0
    watcher: Watcher = field(init=False)
    arrives_ns: Sequence[int] = field(init=False)
    _fed: int = 0

    def __post_init__(self) -> None:
        length = pc.fill_null(self.events["duration_ns"], 0)
        ended = pc.add(self.events["timestamp_ns"], length).to_numpy()
        # Every node sends at its own moment of the second.
        phase = {node: number * S // 7 % S for number, node in enumerate(pc.unique(self.events["node_id"]).to_pylist())}
        own = np.array([phase[node] for node in self.events["node_id"].to_pylist()])
        arrives = (ended - own) // EXPORT_NS * EXPORT_NS + own + EXPORT_NS
        order = np.argsort(arrives, kind="stable")
        self.events, self.arrives_ns = self.events.take(order), arrives[order]
        self.now_ns = self.now_ns or int(self.arrives_ns[0])
        self.watcher = self.begin_watch()

    def begin_watch(self) -> Watcher:
        """A watch that knows nothing yet, as after a restart."""
        self.watcher = Watcher(self.store, lambda: self.now_ns)
        return self.watcher

    def pass_time(self, seconds: float) -> list[Notice]:
        """What the watch tells meanwhile."""
        until_ns = self.now_ns + int(seconds * S)
        told: list[Notice] = []
        while self.now_ns + self.every_s * S <= until_ns:
            self.now_ns += self.every_s * S
            self._feed()
            told += self.watcher.look(Cancellation())
        return told

    def pass_all(self, more_s: float = 60) -> list[Notice]:
        """Until the events end, and some time more."""
        return self.pass_time((int(self.arrives_ns[-1]) - self.now_ns) / S + more_s)

    def _feed(self) -> None:
        until = int(np.searchsorted(self.arrives_ns, self.now_ns, side="right"))
        arrived = self.events.slice(self._fed, until - self._fed).combine_chunks().to_batches()
        for waiting in [self.store.append(batch) for batch in arrived]:
            waiting.result(timeout=30)
        self._fed = until
