"""What the guard costs a statement that it has not seen before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median, quantiles

from bench.figure import Figure, seconds
from ingero_mcp.sqlguard import check, checked
from tests.sqlguard.statements import allowed

_ROUNDS = 5


def figures() -> Iterator[Figure]:
    """Median and 99th percentile over the statements that pass, in milliseconds, each checked anew."""
    rounds = [_round() for _ in range(_ROUNDS)]
    for name, figure in (("p50", median), ("p99", lambda values: quantiles(values, n=100)[98])):
        values = [figure(elapsed_ms) for elapsed_ms in rounds]
        yield Figure(f"guard, {name} of statements that pass", median(values), "ms", min(values), max(values))


def _round() -> list[float]:
    checked._verdict.cache_clear()
    return [seconds(partial(check, sql)) * 1e3 for sql in allowed()]
