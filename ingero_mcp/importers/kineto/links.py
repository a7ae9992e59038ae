"""From a kernel back to what the host said of it, for traces whose kernels do not say it themselves.

A kernel and the operator that started it share an external id; in older traces the only way is the call that launched
the kernel, which lies in time within the operator, on the same thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import numpy as np

from ingero_mcp.importers.kineto.columns import NONE, Columns, Int64s, Thread
from ingero_mcp.importers.kineto.records import Record, Said

_MOST_NESTED = 16


class Links:
    """What the host said of collectives, by the kernels that carried them out."""

    def __init__(self, records: list[Record], columns: Columns) -> None:
        self._by_external: dict[int, Record] = {}
        by_thread: defaultdict[Thread, list[Record]] = defaultdict(list)
        for record in records:
            if record.external is not None:
                self._by_external[record.external] = record
            if record.thread is not None and record.duration_ns is not None:
                by_thread[record.thread].append(record)
        self._by_thread = {
            thread: sorted(inside, key=lambda record: record.start_ns) for thread, inside in by_thread.items()
        }
        self._starts = {thread: [record.start_ns for record in inside] for thread, inside in self._by_thread.items()}
        self._columns = columns
        self._correlations, self._launches = _launches(columns)

    def said_of(self, kernel: Record) -> Said:
        """The most that is known of a kernel's collective."""
        if kernel.said.full:
            return kernel.said
        found = [kernel]
        # Traces before PyTorch 1.13 wrote the correlation id here too, and then it is not that of an operator.
        if kernel.external is not None and kernel.external != kernel.correlation:
            linked = self._by_external.get(kernel.external)
            found += [linked] if linked is not None and linked.start_ns <= kernel.start_ns else []
        if not found[-1].said.full:
            found += self._around_launch(kernel)
        return max((record.said for record in found), key=_worth)

    def _around_launch(self, kernel: Record) -> list[Record]:
        if kernel.correlation is None or not len(self._correlations):
            return []
        place = int(np.searchsorted(self._correlations, kernel.correlation))
        if place == len(self._correlations) or self._correlations[place] != kernel.correlation:
            return []
        thread, start_ns = self._columns.threads[self._launches[0][place]], int(self._launches[1][place])
        last = bisect_right(self._starts.get(thread, []), start_ns)
        before = self._by_thread.get(thread, [])[max(0, last - _MOST_NESTED) : last]
        return [record for record in before if record.start_ns + (record.duration_ns or 0) >= start_ns]


def _worth(said: Said) -> tuple[bool, bool, bool]:
    return said.full, said.in_elements is not None, bool(said.collective)


def _launches(columns: Columns) -> tuple[Int64s, tuple[Int64s, Int64s]]:
    """The calls on the host: their correlation ids, sorted, and beside them their threads and starts."""
    correlation, thread = columns.numbers("correlation"), columns.numbers("thread")
    calls = np.flatnonzero((thread != NONE) & (correlation != NONE))
    calls = calls[np.argsort(correlation[calls], kind="stable")]
    return correlation[calls], (thread[calls], columns.numbers("start_ns")[calls])
