"""CSV: what was recorded comes back, and what is nothing differs from what is empty."""

from __future__ import annotations

import csv
import io
import math
from datetime import datetime

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.export.csv_lines import csv_lines

TABLE = pa.table(
    {
        "text": pa.array(["", None, 'a "b", c', "two\r\nlines", "plain"]),
        "double": pa.array([0.1, None, math.nan, -math.inf, 1e300]),
        "whole": pa.array([2**63 - 1, None, -(2**63), 0, 1], pa.int64()),
        "list": pa.array([[1, None], None, [], [2], [3]]),
        "bytes": pa.array([b"\x00\xff", None, b"", b"a", b"b"]),
        "time": pa.array([datetime(2026, 11, 30, 14, 30), None, None, None, None]),
    }
)


def written(table: pa.Table, *, for_spreadsheets: bool = False) -> str:
    return b"".join(csv_lines(table.schema, [table], for_spreadsheets=for_spreadsheets)).decode()


def test_the_file_is_as_documented() -> None:
    assert written(TABLE).split("\r\n") == [
        "text,double,whole,list,bytes,time",
        '"",0.1,9223372036854775807,"[1,null]",00ff,2026-11-30T14:30:00',
        ",,,,,",
        '"a ""b"", c",NaN,-9223372036854775808,[],"",',
        '"two',
        'lines",-Infinity,0,[2],61,',
        "plain,1e+300,1,[3],62,",
        "",
    ]


def test_no_rows_are_a_line_of_names() -> None:
    assert written(TABLE.slice(0, 0)) == "text,double,whole,list,bytes,time\r\n"
    assert written(pa.table({'a "name"': pa.array(["x"])})) == '"a ""name"""\r\nx\r\n'


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=6), st.floats(allow_nan=False)), min_size=1))
def test_a_reader_gets_back_what_was_recorded(rows: list[tuple[str, float]]) -> None:
    texts, numbers = zip(*rows, strict=True)
    table = pa.table({"text": pa.array(texts, pa.string()), "number": pa.array(numbers, pa.float64())})
    read = list(csv.reader(io.StringIO(written(table), newline="")))
    assert [(text, float(number)) for text, number in read[1:]] == rows


def test_a_spreadsheet_has_nothing_to_execute_where_that_is_asked_for() -> None:
    recorded = ["=1+2", "+1", "-1", "@x", "\t=1", "\r=1", "a=b", "", None, '=HYPERLINK("x")']
    table = pa.table({"process": pa.array(recorded), "number": pa.array([-1] * len(recorded))})
    harmless = list(csv.reader(io.StringIO(written(table, for_spreadsheets=True), newline="")))[1:]
    assert [text for text, _ in harmless] == [
        "'=1+2", "'+1", "'-1", "'@x", "'\t=1", "'\r=1", "a=b", "", "", "'=HYPERLINK(\"x\")"
    ]  # fmt: skip
    assert {number for _, number in harmless} == {"-1"}
    exact = list(csv.reader(io.StringIO(written(table), newline="")))[1:]
    assert [text for text, _ in exact] == [text or "" for text in recorded]
