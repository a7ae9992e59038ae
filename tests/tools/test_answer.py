"""Answers in two channels: the same facts, strict JSON, one line per row, never more than the most bytes."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp import cells
from ingero_mcp.tools.answer import MAX_BYTES, Answer, Finished, Table, finish

LIMIT = 100
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def of(rows: list[tuple[object, ...]], width: int = 1, **more: Any) -> Finished:
    return finish(Answer(tuple(f"c{place}" for place in range(width)), rows, LIMIT, **more), Table)


def strict(finished: Finished) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    wire = json.dumps({"structuredContent": finished.structured, "text": finished.text}, ensure_ascii=False)
    assert len(wire.encode("utf-8", "surrogatepass")) <= MAX_BYTES
    read: dict[str, Any] = json.loads(wire, parse_constant=refuse)["structuredContent"]
    return read


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=30))
def test_both_channels_hold_the_same_rows_whatever_is_in_them(rows: list[tuple[object, ...]]) -> None:
    finished = of(rows, 2)
    told = strict(finished)
    table = finished.text.partition("rows (recorded data")[2].split("\n")[1:]
    assert table[0] == "c0\tc1"
    assert told["row_count"] == len(told["rows"]) == len(table) - 1
    assert told["truncated"] == (told["row_count"] < len(rows))
    assert all(line.count("\t") == 1 for line in table)
    for place in range(2):
        kinds = {type(row[place]) for row, own in zip(told["rows"], rows, strict=False) if type(own[place]) is int}
        assert len(kinds) <= 1


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_escaped_text_is_one_line_that_says_exactly_what_was_recorded(recorded: str) -> None:
    def unescaped(match: re.Match[str]) -> str:
        code = match[1]
        return {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}.get(code) or chr(int(code[1:], 16))

    line = cells.escaped(recorded)
    assert len(line.splitlines()) <= 1
    assert not any(ord(char) < 32 for char in line)
    assert re.sub(r"\\(u[0-9a-f]{4}|U[0-9a-f]{8}|[tnr\\])", unescaped, line) == recorded


@pytest.mark.parametrize("size", [10, 4096, 4097, 100_000])
def test_a_cell_is_cut_at_its_most_bytes_and_says_how_long_it_was(size: int) -> None:
    told = strict(of([("é" * (size // 2),)]))
    (cell,) = told["rows"][0]
    whole = len("é" * (size // 2)) * 2
    assert cell == "é" * (min(whole, 4096) // 2) + (f"[cut: {whole} bytes]" if whole > 4096 else "")
    assert bool(told["notes"]) == (whole > 4096)


@pytest.mark.parametrize("value", [list(range(5000)), {"a": "x" * 9000}, b"\x00" * 9000])
def test_long_nested_and_binary_cells_are_cut_as_text(value: object) -> None:
    (cell,) = strict(of([(value,)]))["rows"][0]
    assert isinstance(cell, str)
    assert len(cell.encode()) < 4200
    assert "[cut: " in cell


@pytest.mark.parametrize(
    ("value", "expected"),
    [(Decimal("0.1"), 0.1), (Decimal("5"), 5.0), (Decimal("0.12345678901234567890"), "0.12345678901234567890")],
)
def test_a_decimal_is_a_number_where_that_loses_nothing(value: Decimal, expected: object) -> None:
    assert cells.structured(value) == expected
    assert cells.text(value) == str(value)


def test_rows_beyond_the_size_are_left_to_the_next_call_with_the_right_place() -> None:
    asked: list[int] = []

    def resume(shown: int) -> str:
        asked.append(shown)
        return f"go on from {shown}"

    told = strict(of([("x" * 1000,)] * 100, resume=resume))
    assert told["next"] == f"go on from {told['row_count']}"
    assert 10 < told["row_count"] < 30
    assert asked[-1] == told["row_count"]


def test_a_whole_answer_has_its_follow_up_as_the_next_call_or_none() -> None:
    assert strict(of([(1,)], resume=lambda _: "more", follow_up="then"))["next"] == "then"
    assert "next" not in strict(of([(1,)], resume=lambda _: "more"))


def test_optional_fields_are_absent_and_not_null() -> None:
    assert of([]).structured == {
        "row_count": 0, "truncated": False, "limit": LIMIT, "notes": [], "columns": ["c0"], "rows": [],
    }  # fmt: skip


def test_a_header_larger_than_an_answer_says_what_to_do() -> None:
    told = strict(finish(Answer(tuple("x" * 250 for _ in range(400)), [], LIMIT), Table))
    assert told["columns"] == []
    assert "select fewer columns" in told["notes"][0]
