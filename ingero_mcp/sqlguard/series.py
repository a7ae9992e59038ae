"""The bounds of range() and generate_series() in FROM, worked out from their arguments.

The engine makes their rows one batch at a time and can be stopped between two, so the bound keeps a mistyped
literal from running into the time limit; memory is not at stake here, as it is where they stand as values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from ingero_mcp.errors import Reason
from ingero_mcp.sqlguard import allowed
from ingero_mcp.sqlguard.engine import Tree

_HINT = (
    f"Write literal bounds, at most {allowed.MAX_SERIES} rows apart, and filter on columns in a join: FROM "
    "range(64) r(i) JOIN events e ON r.i = e.rank. For times: generate_series(TIMESTAMP '2026-11-30 14:00', "
    "TIMESTAMP '2026-11-30 15:00', INTERVAL 1 MINUTE)."
)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2419200, "year": 31536000}
_STEP = re.compile(r"(\d+)\s*(second|minute|hour|day|week|month|year)s?", re.IGNORECASE)
_TIME_TYPES = frozenset({"date", "timestamp", "timestamptz", "timestamp with time zone"})
_NOW = frozenset({"now", "today", "get_current_timestamp", "current_date", "current_timestamp", "localtimestamp"})


def check_series(function: Tree, offset: int | None) -> Iterator[Reason]:
    """Reasons to refuse this call: bounds that are not literal, or too many rows."""
    arguments = function.get("arguments", [])
    is_named = any(argument.get("name") for argument in arguments)
    rows = None if is_named else _rows([argument["expression"] for argument in arguments])
    if rows is None:
        message = "The bounds of a series must be literal numbers, or times with a step of whole seconds or more."
        yield Reason("series_not_literal", message, _HINT, offset)
    elif rows > allowed.MAX_SERIES:
        message = f"The series has more than {allowed.MAX_SERIES} rows."
        yield Reason("series_too_long", message, _HINT, offset)


def _rows(values: list[Tree]) -> float | None:
    rows = _rows_of_numbers(values)
    return _rows_of_times(values) if rows is None else rows


def _rows_of_numbers(values: list[Tree]) -> float | None:
    numbers = [number for value in values if (number := _number(value)) is not None]
    if len(numbers) != len(values):
        return None
    match numbers:
        case [stop]:
            return max(0, stop)
        case [start, stop]:
            return max(0, stop - start)
        case [start, stop, step] if step:
            return max(0, (stop - start) / step)
    return None


def _number(value: Tree) -> int | None:
    literal = value.get("literal", {})
    if value.get("class") != "CONSTANT" or literal.get("kind") != "INTEGER":
        return None
    text = literal.get("text", "").replace("_", "")
    return int(text) if text.removeprefix("-").isdecimal() else None


def _rows_of_times(values: list[Tree]) -> float | None:
    if len(values) != 3:
        return None
    step = _step(values[2])
    if not step or not all(_is_time(value) for value in values[:2]):
        return None
    start, stop = (_moment(value) for value in values[:2])
    # Bounds that hang on the clock (now() - INTERVAL 1 DAY) are not worked out; a step of a second bounds them.
    return max(0.0, (stop - start) / step) if start is not None and stop is not None else 0


def _step(value: Tree) -> int | None:
    match value:
        case {"class": "CAST", "type_expr": {"qualified_name": {"path": [name]}}, "child": child}:
            found = (
                _STEP.fullmatch(child.get("literal", {}).get("text", ""))
                if allowed.folded(name) == "interval"
                else None
            )
            return int(found[1]) * _SECONDS[found[2].lower()] if found else None
        case {"class": "FUNCTION", "function_name": name, "arguments": [{"expression": amount}]}:
            unit = _SECONDS.get(allowed.folded(name).removeprefix("to_").removesuffix("s"))
            number = _amount(amount)
            return number * unit if number and unit else None
    return None


def _amount(value: Tree) -> int | None:
    # INTERVAL 5 MINUTE arrives as to_minutes(CAST(trunc(CAST(5 AS DOUBLE)) AS BIGINT)).
    match value:
        case {"class": "CAST", "child": child}:
            return _amount(child)
        case {"class": "FUNCTION", "function_name": "trunc", "arguments": [{"expression": inner}]}:
            return _amount(inner)
    return _number(value)


def _is_time(value: Tree) -> bool:
    match value:
        case {"class": "CAST", "type_expr": {"qualified_name": {"path": [name]}}}:
            return allowed.folded(name) in _TIME_TYPES
        case {"class": "COLUMN_REF", "column_names": [name]}:
            return allowed.folded(name) in _NOW
        case {"class": "FUNCTION", "function_name": "+" | "-", "arguments": [first, _]}:
            return _is_time(first["expression"])
        case {"class": "FUNCTION", "function_name": "date_trunc", "arguments": [_, second]}:
            return _is_time(second["expression"])
        case {"class": "FUNCTION", "function_name": name}:
            return allowed.folded(name) in _NOW
    return False


def _moment(value: Tree) -> float | None:
    text = value.get("child", {}).get("literal", {}).get("text", "")
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
