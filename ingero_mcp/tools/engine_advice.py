"""What to say beside the engine's words when it refuses SQL that the guard let pass: what to write in its stead.

By kinds of mistake, as data: each is a pattern over the engine's message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ingero_mcp.cells import escaped
from ingero_mcp.tools.nearest import listed, nearest
from ingero_mcp.views import relations

_WORD: Final = re.compile(r"[a-z_][a-z_0-9]*")
_UNKNOWN: Final = re.compile(
    r'(?:Referenced column|does not have a column named|named in USING clause:?)\s+"([^"]*)"', re.IGNORECASE
)
_UNITS: Final = frozenset({"microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "year"})
_MOST_LINES: Final = 12
_MEANT: Final = {
    "attrs": "attrs_json",
    "attributes": "attrs_json",
    "resource_attributes": "attrs_json",
    "labels": "attrs_json",
    "tags": "attrs_json",
    "body": "attrs_json",
    "host": "node_id",
    "hostname": "node_id",
    "host_name": "node_id",
    "instance": "node_id",
    "name": "metric_name",
    "metric": "metric_name",
    "operation": "metric_name",
    "event_name": "metric_name",
    "span_name": "metric_name",
    "value": "value_double",
    "ts": "timestamp_ns",
    "time": "timestamp_ns",
    "created_at": "timestamp_ns",
    "start_time": "timestamp_ns",
    "start_ns": "timestamp_ns",
    "rowid": "event_seq",
    "rownum": "event_seq",
    "gpu": "gpu_uuid",
    "seq": "coll_seq",
    "size": "bytes",
}
"""Columns of events by the names that people try first."""

_NS: Final = "timestamp_ns is a BIGINT of Unix nanoseconds"
_HINTS: Final = tuple(
    (re.compile(pattern, re.DOTALL), hint)
    for pattern, hint in (
        (
            r"must appear in the GROUP BY|must appear in the GROUP",
            "GROUP BY ALL groups by every selected column that is not an aggregate: "
            "SELECT node_id, count(*) FROM events GROUP BY ALL",
        ),
        (
            r"aggregate function calls cannot be nested",
            "aggregate in a subquery first: SELECT avg(longest) FROM "
            "(SELECT node_id, max(duration_ns) AS longest FROM events GROUP BY node_id)",
        ),
        (
            r"WHERE clause cannot contain aggregates",
            "filter groups with HAVING: SELECT node_id FROM events GROUP BY node_id HAVING count(*) > 1",
        ),
        (
            r"cannot contain window functions",
            "filter on a window with QUALIFY: SELECT node_id, rank FROM events "
            "QUALIFY row_number() OVER (PARTITION BY node_id ORDER BY timestamp_ns) = 1",
        ),
        (r"Window functions are not supported here", "add OVER: lag(value_double) OVER (ORDER BY timestamp_ns)"),
        (
            r"(compare|mix) values of type (BIGINT|HUGEINT) and type (TIMESTAMP|DATE)|values of type BIGINT and "
            r"(TIMESTAMP|DATE)|values of type (TIMESTAMP|DATE)\S*( WITH TIME ZONE)? and (type )?BIGINT",
            f"{_NS}: timestamp_ns >= epoch_ns(TIMESTAMP '2026-11-30 14:00:00'), or "
            "timestamp_ns > epoch_ns(now() - INTERVAL 1 HOUR)",
        ),
        (
            r"Could not convert string '\d{4}-\d\d-\d\d.*' to INT64",
            f"{_NS}: timestamp_ns >= epoch_ns(TIMESTAMP '2026-11-30 14:00:00')",
        ),
        (
            r"'(date_trunc|date_part|time_bucket|strftime|datetrunc|dayname|hour|minute|age|date_diff|datediff)"
            r"\([^']*\b(BIGINT|DOUBLE|INTEGER|HUGEINT|DECIMAL)",
            f"{_NS}, make a timestamp of it: date_trunc('minute', make_timestamp_ns(timestamp_ns)), "
            "time_bucket(INTERVAL 1 MINUTE, make_timestamp_ns(timestamp_ns)), "
            "strftime(make_timestamp_ns(timestamp_ns), '%H:%M:%S')",
        ),
        (
            r"'(date_sub|date_add|datesub)\(|'[+-]\(TIMESTAMP[^']*(INTEGER|BIGINT|DOUBLE|LITERAL)",
            "add or subtract an INTERVAL: now() - INTERVAL 1 HOUR; in nanoseconds: epoch_ns(now() - INTERVAL 1 HOUR)",
        ),
        (
            r"'[*/]\(TIMESTAMP",
            f"{_NS}: to_timestamp(timestamp_ns / 1e9) or make_timestamp_ns(timestamp_ns)",
        ),
        (
            r'Cannot extract field|attrs_json\[|Could not convert string .* to INT64.*attrs_json|"attrs_json" because',
            "attributes are JSON text: json_extract_string(attrs_json, '$.severity'), or attrs_json->>'severity'; "
            "keys with dots: json_extract_string(attrs_json, '$.\"host.name\"')",
        ),
        (r"'@>\(VARCHAR", "JSON is compared with json_contains(attrs_json, '{\"a\":1}')"),
        (
            r"UNNEST requires|unnest\(VARCHAR",
            "JSON is taken apart with json_each: SELECT j.key, j.value FROM events e, json_each(e.attrs_json) j",
        ),
        (r"'count\(\w+, ", "several columns are counted as one: count(DISTINCT (node_id, rank))"),
        (
            r"'(sum|avg|median|stddev|quantile_cont)\(VARCHAR",
            "text is no number: sum(TRY_CAST(json_extract_string(attrs_json, '$.n') AS DOUBLE))",
        ),
        (
            r"Could not choose a best candidate|'\+\(VARCHAR",
            "texts are joined with ||: node_id || ':' || rank; a text becomes a number with TRY_CAST(x AS DOUBLE)",
        ),
        (
            r"Unimplemented type for cast \(BIGINT -> (TIMESTAMP|DATE|TIME)",
            f"{_NS}: make_timestamp_ns(timestamp_ns)",
        ),
        (
            r"Unimplemented type for cast \(INT64 -> INT64\)",
            "epoch_ms and epoch_us fail on TIMESTAMP_NS: write timestamp_ns // 1000000",
        ),
        (
            r"Could not convert string",
            "TRY_CAST gives NULL where CAST fails: TRY_CAST(x AS BIGINT)",
        ),
        (r"Referenced table .* not found", "write the alias that FROM gives the relation, or leave it out"),
        (r"Deprecated lambda arrow", "write lambda x: x + 1 in place of x -> x + 1"),
        (r"More than one row returned by a subquery", "add LIMIT 1, an aggregate, or use IN"),
        (r"set operation.* same number|can only apply .*same number", "name the columns: UNION ALL BY NAME"),
    )
)


def advice(message: str, sql: str) -> list[str]:
    """Lines for whoever wrote `sql`, which the engine refused with `message`."""
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        return [escaped(line) for line in _about_column(unknown[1], sql)]
    return next(([f"instead: {hint}"] for pattern, hint in _HINTS if pattern.search(message)), [])


def shortened(message: str) -> str:
    """The engine's message about the text as it was asked: without our schema, and without the last of long lists."""
    lines: list[str] = []
    above = ""
    for line in message.splitlines():
        mark = line.find("^")
        shift = above[: max(mark, 0)].count("main.") * len("main.") if line.strip(" ^") == "" else 0
        above = line
        lines.append(line[shift:].replace("main.", ""))
    more = len(lines) - _MOST_LINES
    return "\n".join(lines if more <= 0 else [*lines[:_MOST_LINES], f"... and {more} lines more"])


def _about_column(name: str, sql: str) -> Iterator[str]:
    folded = name.lower()
    words = set(_WORD.findall(sql.lower()))
    named = {relation: columns for relation, columns in relations().items() if relation in words}
    if folded in _UNITS:
        yield f"instead: write the unit as text: date_diff('{folded}', a, b)"
        return
    if f'"{name}"' in sql or any(char in name for char in "\u2018\u2019\u201a\u201c\u201d\u201e"):
        text = name.strip("\u2018\u2019\u201a\u201c\u201d\u201e").replace("'", "''")
        yield f"instead: double quotes are for names, text stands in straight single quotes: '{text}'"
        return
    known = list(dict.fromkeys(column for columns in named.values() for column in columns))
    near = nearest(name, known)
    meant = [_MEANT[folded]] if _MEANT.get(folded) in known else []
    if near or meant:
        yield f"nearest columns: {listed(dict.fromkeys([*meant, *near]))}"
    elsewhere = [relation for relation, columns in relations().items() if folded in columns and relation not in named]
    if elsewhere:
        yield f"{name} is a column of {listed(elsewhere)}"
    if "events" in named and not meant and _WORD.fullmatch(folded):
        yield f"an attribute without a column of its own: json_extract_string(attrs_json, '$.{name}')"
