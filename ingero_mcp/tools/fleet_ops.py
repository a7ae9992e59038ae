"""What operations ran on each node, how often and for how long: true counts, also where an agent kept the slow ones."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from ingero_mcp.analysis.chains.record import BLOCK_NS, Span
from ingero_mcp.analysis.chains.sampled import FRACTIONS, Sampled
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.chains.calls import NODE, Counted, counted, rows, sampled_of
from ingero_mcp.windows import Window

COLUMNS: Final = (
    "node", "cluster_id", "source", "op", "count", "kept", "p50_us", "p95_us", "p99_us", "longest_us", "total_ms",
)  # fmt: skip

_SLOW_KEPT: Final = ("cuda", "driver", "graph", "io", "net")  # sources of which an agent keeps the slow ones


def fleet_ops(call: Call, window: Window) -> list[tuple[object, ...]]:
    """A row for each node, source and operation, those that took most time first.

    `count` is how often it happened, `kept` how many of those are events. Quantiles are of all of them; NULL of what
    has no duration, and of what is kept by other rules than that it was slow.
    """
    span = Span(window.start_ns, window.end_ns)
    known = _by_op(call, span.cells(BLOCK_NS))
    quantiles = ", ".join(f"{fraction:g}" for fraction in FRACTIONS)
    found = rows(
        call,
        f"SELECT {NODE}, source, metric_name AS op, count(*) AS kept, "
        "sum(CAST(coalesce(duration_ns, 0) AS DOUBLE)) AS kept_ns, "
        f"quantile_disc(duration_ns, [{quantiles}]) AS quantiles, max(duration_ns) AS longest_ns FROM events "
        f"WHERE timestamp_ns >= {window.start_ns} AND timestamp_ns < {window.end_ns} "
        "AND (duration_ns IS NOT NULL OR value_double IS NULL) GROUP BY ALL",
    )
    table = [_row(row, known.pop((row["cluster"], row["place"], row["source"], row["op"]), None)) for row in found]
    table += [_only_counted(key, of_agent) for key, of_agent in known.items()]
    return sorted(table, key=lambda row: (-_number(row[-1]), str(row[0]), str(row[2]), str(row[3])))


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0.0


Key = tuple[str, str, str, str]


def _by_op(call: Call, span: Span) -> dict[Key, list[Counted]]:
    found: defaultdict[Key, list[Counted]] = defaultdict(list)
    for (cluster, node), of_place in counted(call, "true", span).items():
        for one in of_place:
            found[cluster, node, one.source, one.op].append(one)
    return dict(found)


def _row(row: dict[str, Any], of_agent: list[Counted] | None) -> tuple[object, ...]:
    totals = _totals(of_agent or [])
    kept_ns = int(row["kept_ns"] or 0)
    if row["longest_ns"] is None:
        return (row["place"], row["cluster"], row["source"], row["op"], max(row["kept"], totals[0]), row["kept"],
                None, None, None, None, None)  # fmt: skip
    sampled = sampled_of(row["kept"], kept_ns, row["quantiles"], totals)
    longest = max(row["longest_ns"], *(one.longest_ns for one in of_agent or []), 0)
    return _shown((row["cluster"], row["place"], row["source"], row["op"]), sampled, kept_ns, longest)


def _only_counted(key: Key, of_agent: list[Counted]) -> tuple[object, ...]:
    count, _, sum_ns = _totals(of_agent)
    longest = max(one.longest_ns for one in of_agent)
    if not longest:
        return (key[1], key[0], key[2], key[3], count, 0, None, None, None, None, None)
    return _shown(key, Sampled(0, (), count, sum_ns), 0, longest)


def _totals(of_agent: list[Counted]) -> tuple[int, int, int]:
    return (
        sum(one.count for one in of_agent),
        sum(one.stored for one in of_agent),
        sum(one.sum_ns for one in of_agent),
    )


def _shown(key: Key, sampled: Sampled, kept_ns: int, longest_ns: int) -> tuple[object, ...]:
    if not sampled.count:
        return (key[1], key[0], key[2], key[3], 0, 0, None, None, None, None, None)
    is_known = sampled.kept > 0 and (not sampled.counted or key[2] in _SLOW_KEPT)
    quantiles = [_us(sampled.quantile_ns(share)) if is_known else None for share in (0.5, 0.95, 0.99)]
    total_ms = round((kept_ns + sampled.counted_ns) / 1e6, 3)
    return (key[1], key[0], key[2], key[3], sampled.count, sampled.kept, *quantiles, _us(longest_ns), total_ms)


def _us(ns: int) -> float:
    return round(ns / 1000, 3)
