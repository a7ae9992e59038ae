"""run_analysis: values exact and strict, empty and odd results, pages, and refusals that teach."""

from __future__ import annotations

from typing import Any

import pytest

from ingero_mcp.limits import StoreLimits
from ingero_mcp.store import Store, open_store
from tests.tools.fleet import ANALYSIS, NOON, ask, lines_of, next_of, put, samples, table_of, text_of

pytestmark = pytest.mark.anyio


async def rows(store: Store, sql: str, **arguments: Any) -> list[list[Any]]:
    result = await ask(store, ANALYSIS, {"sql": sql, **arguments})
    assert not result.is_error, text_of(result)
    told: list[list[Any]] = result.structured_content["rows"]
    return told


@pytest.mark.parametrize(
    ("expression", "structured", "text"),
    [
        ("1", 1, "1"),
        ("9007199254740991", 9007199254740991, "9007199254740991"),
        ("9007199254740992", "9007199254740992", "9007199254740992"),
        ("-9007199254740993", "-9007199254740993", "-9007199254740993"),
        ("CAST(9223372036854775807 AS HUGEINT) * 10", "92233720368547758070", "92233720368547758070"),
        ("true", True, "true"),
        ("NULL", None, "\\N"),
        ("'NULL'", "NULL", "NULL"),
        ("''", "", ""),
        ("0.5", 0.5, "0.5"),
        ("CAST('NaN' AS DOUBLE)", "NaN", "NaN"),
        ("CAST('Infinity' AS DOUBLE)", "Infinity", "Infinity"),
        ("CAST('-Infinity' AS DOUBLE)", "-Infinity", "-Infinity"),
        ("CAST(1e300 AS DOUBLE)", 1e300, "1e+300"),
        ("12345678901234567890.123456789", "12345678901234567890.123456789", "12345678901234567890.123456789"),
        ("DATE '2026-11-30'", "2026-11-30", "2026-11-30"),
        ("TIMESTAMP '2026-11-30 12:00:00'", "2026-11-30T12:00:00", "2026-11-30T12:00:00"),
        ("unhex('DEADBEEF')", "deadbeef", "deadbeef"),
        ("[1, NULL, 2]", [1, None, 2], "[1,null,2]"),
        ("[9007199254740993, 1]", ["9007199254740993", "1"], "[9007199254740993,1]"),
        ("{'a': 1, 'b': [CAST('NaN' AS DOUBLE)]}", {"a": 1, "b": ["NaN"]}, '{"a":1,"b":["NaN"]}'),
        ("'a' || chr(9) || 'b'", "a\tb", "a\\tb"),
    ],
)
async def test_every_kind_of_value(store: Store, expression: str, structured: object, text: str) -> None:
    result = await ask(store, ANALYSIS, {"sql": f"SELECT {expression} AS v"})
    assert not result.is_error, text_of(result)
    assert result.structured_content["rows"] == [[structured]]
    assert type(result.structured_content["rows"][0][0]) is type(structured)
    assert lines_of(result)[1] == [text]


async def test_a_column_with_one_large_integer_is_strings_in_every_row(store: Store, era: str) -> None:
    sql = "SELECT * FROM (VALUES (1, 1), (9007199254740993, 2)) AS t(large, small) ORDER BY small"
    result = await ask(store, ANALYSIS, {"sql": sql}, era=era)
    assert result.structured_content["rows"] == [["1", 1], ["9007199254740993", 2]]
    assert lines_of(result)[1:] == [["1", "1"], ["9007199254740993", "2"]]


async def test_a_time_from_an_answer_finds_its_row_quoted_or_not(store: Store) -> None:
    put(store, [{"timestamp_ns": NOON + 1}, {"timestamp_ns": NOON + 2}])
    ((time,),) = await rows(store, "SELECT min(timestamp_ns) FROM events")
    for pasted in (time, f"'{time}'"):
        assert await rows(store, f"SELECT event_seq FROM events WHERE timestamp_ns = {pasted}") == [[0]]


async def test_no_rows_keep_their_columns_and_say_which_range_has_data(store: Store, era: str) -> None:
    sql = "SELECT node_id, rank FROM events WHERE false"
    result = await ask(store, ANALYSIS, {"sql": sql}, era=era)
    assert result.structured_content["columns"] == ["node_id", "rank"]
    assert "the database has no events yet" in text_of(result)
    put(store, samples({"n1": [0.5]}))
    result = await ask(store, ANALYSIS, {"sql": sql}, era=era)
    assert result.structured_content["row_count"] == 0
    assert lines_of(result) == [["node_id", "rank"]]
    assert "the database has events from 2026-11-30T12:00:00Z" in text_of(result)


async def test_columns_of_the_same_name_or_of_none_are_kept_apart(store: Store, era: str) -> None:
    result = await ask(store, ANALYSIS, {"sql": "SELECT 1 AS a, 2 AS a, NULL AS b"}, era=era)
    assert result.structured_content["columns"] == ["a", "a", "b"]
    assert result.structured_content["rows"] == [[1, 2, None]]


async def test_an_explicit_limit_beats_the_default_and_truncation_is_said(store: Store, era: str) -> None:
    put(store, samples({"n1": [0.5] * 300}))
    sql = "SELECT event_seq FROM events ORDER BY event_seq"
    for limit, shown, truncated in (
        (None, 100, True),
        (7, 7, True),
        (250, 250, True),
        (300, 300, False),
        (999, 300, False),
    ):
        result = await ask(store, ANALYSIS, {"sql": sql, "limit": limit}, era=era)
        told = result.structured_content
        assert (told["row_count"], told["truncated"], told["limit"]) == (shown, truncated, limit or 100)
        assert ("more follow" in text_of(result)) == truncated
        assert ("next" in told) == truncated


@pytest.mark.parametrize(
    "sql", ["SELECT event_seq FROM events ORDER BY event_seq", "SELECT event_seq FROM events ORDER BY 1 LIMIT 90;"]
)
async def test_the_next_calls_lead_through_all_rows(store: Store, sql: str) -> None:
    put(store, samples({"n1": [0.5] * 100}))
    seen: list[int] = []
    tool, arguments = ANALYSIS, {"sql": sql, "limit": 40}
    for _ in range(10):
        result = await ask(store, tool, arguments)
        seen += [row["event_seq"] for row in table_of(result)]
        if "next" not in result.structured_content:
            break
        tool, arguments = next_of(result)
    assert seen == list(range(90 if "LIMIT" in sql else 100))


async def test_an_answer_never_exceeds_its_size_and_says_where_it_stopped(store: Store, era: str) -> None:
    put(store, [{"attrs_json": "é" * 3000} for _ in range(50)])
    result = await ask(store, ANALYSIS, {"sql": "SELECT attrs_json FROM events", "limit": 50}, era=era)
    told = result.structured_content
    assert 0 < told["row_count"] < 50
    assert told["truncated"]
    assert f"stopped at {told['row_count']} rows because an answer holds at most 40 kB" in text_of(result)
    assert "cells are cut at 4096 bytes" in text_of(result)
    assert told["rows"][0][0].endswith("[cut: 6000 bytes]")


async def test_one_huge_row_is_cut_rather_than_lost(store: Store) -> None:
    put(store, [{"attrs_json": "x" * 100_000}])
    many = ", ".join(f"attrs_json AS c{place}" for place in range(50))
    (row,) = await rows(store, f"SELECT {many} FROM events")
    assert len(row) == 50
    assert all(cell.endswith("[cut: 100000 bytes]") for cell in row)


async def test_a_row_too_wide_for_any_answer_is_said_to_be(store: Store) -> None:
    many = ", ".join(f"'{'v' * 80}{place}' AS a_rather_long_name_of_a_column_{place}" for place in range(450))
    result = await ask(store, ANALYSIS, {"sql": f"SELECT {many}"})
    assert result.is_error or "select fewer columns" in text_of(result)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DROP TABLE events", "SQL refused"),
        ("SELECT * FROM read_csv('/etc/passwd')", "SQL refused"),
        ("SELECT 1; SELECT 2", "SQL refused"),
        ("SELECT * FROM event", "SQL refused"),
        ("SELEC 1", "SQL refused"),
    ],
)
async def test_refused_sql_comes_back_with_the_reason_and_the_allowed_form(
    store: Store, sql: str, told: str, era: str
) -> None:
    result = await ask(store, ANALYSIS, {"sql": sql}, era=era)
    assert result.is_error
    text = text_of(result)
    assert text.startswith(told)
    assert "accepted: one SELECT (CTEs allowed) over " in text
    assert text.count("events, nodes, clusters") == 1
    assert "fleet://schema" in text
    assert f"example: {ANALYSIS} " in text


@pytest.mark.parametrize(
    ("column", "nearest"), [("node_name", "node_id"), ("timestamp", "timestamp_ns"), ("metricname", "metric_name")]
)
async def test_an_unknown_column_names_the_nearest(store: Store, column: str, nearest: str, era: str) -> None:
    result = await ask(store, ANALYSIS, {"sql": f"SELECT {column} FROM events"}, era=era)
    assert result.is_error
    assert column in text_of(result)
    assert nearest in text_of(result).partition("nearest columns: ")[2]
    assert "fleet://schema" in text_of(result)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT host_name FROM events", "nearest columns: node_id"),
        ("SELECT lateness_ns FROM events", "lateness_ns is a column of collectives"),
        ("SELECT severity FROM events", "json_extract_string(attrs_json, '$.severity')"),
        ('SELECT * FROM events WHERE node_id = "n1"', "text stands in straight single quotes: 'n1'"),
        ("SELECT * FROM events WHERE node_id = \u2018n1\u2019", "text stands in straight single quotes: 'n1'"),
        ("SELECT datediff(second, 1, 2) FROM events", "write the unit as text: date_diff('second', a, b)"),
        ("SELECT node_id, count(*) FROM events", "GROUP BY ALL"),
        ("SELECT avg(max(rank)) FROM events", "aggregate in a subquery first"),
        ("SELECT rank FROM events WHERE count(*) > 1", "HAVING"),
        ("SELECT rank FROM events WHERE row_number() OVER () = 1", "QUALIFY"),
        ("SELECT lag(rank) FROM events", "add OVER"),
        ("SELECT * FROM events WHERE timestamp_ns > now() - INTERVAL 1 HOUR", "epoch_ns(now() - INTERVAL 1 HOUR)"),
        ("SELECT * FROM events WHERE timestamp_ns BETWEEN now() AND now()", "epoch_ns(TIMESTAMP"),
        ("SELECT * FROM events WHERE timestamp_ns > '2026-11-30 12:00'", "epoch_ns(TIMESTAMP"),
        ("SELECT date_trunc('minute', timestamp_ns) FROM events", "make_timestamp_ns(timestamp_ns)"),
        ("SELECT date_sub(now(), INTERVAL 1 HOUR)", "now() - INTERVAL 1 HOUR"),
        ("SELECT to_timestamp(timestamp_ns) / 1e9 FROM events", "to_timestamp(timestamp_ns / 1e9)"),
        ("SELECT timestamp_ns::TIMESTAMP_NS FROM events", "make_timestamp_ns(timestamp_ns)"),
        ("SELECT attrs_json.severity FROM events", "json_extract_string(attrs_json, '$.severity')"),
        ("SELECT attrs_json['severity'] FROM events", "json_extract_string(attrs_json, '$.severity')"),
        ("SELECT count(DISTINCT node_id, rank) FROM events", "count(DISTINCT (node_id, rank))"),
        ("SELECT sum(node_id) FROM events", "TRY_CAST"),
        ("SELECT x.rank FROM events e", "the alias that FROM gives"),
    ],
)
async def test_what_the_engine_refuses_comes_back_with_what_to_write(store: Store, sql: str, told: str) -> None:
    put(store, [{"attrs_json": '{"severity":"HIGH"}'}])
    result = await ask(store, ANALYSIS, {"sql": sql})
    assert result.is_error
    assert told in text_of(result)
    assert "fleet://schema" in text_of(result)


async def test_what_the_engine_says_is_about_the_sql_that_was_asked(store: Store) -> None:
    put(store, [{}])
    result = await ask(store, ANALYSIS, {"sql": "SELECT CAST(node_id AS BIGINT) FROM events WHERE node_id = 'n1'"})
    assert "main." not in text_of(result)
    result = await ask(store, ANALYSIS, {"sql": "SELECT rank FROM events WHERE CAST(node_id AS BIGINT) = 1"})
    line, mark = text_of(result).split("LINE 1: ")[1].splitlines()[:2]
    assert line[mark.index("^") - len("LINE 1: ") :].startswith("CAST(node_id")
    result = await ask(store, ANALYSIS, {"sql": "SELECT time_bucket(60, timestamp_ns) FROM events"})
    assert "lines more" in text_of(result)


async def test_what_the_engine_refuses_is_told_without_a_way_out_of_the_line(store: Store) -> None:
    put(store, [{"process": "not a\u202enumber\x1b"}])
    result = await ask(store, ANALYSIS, {"sql": "SELECT CAST(process AS INTEGER) FROM events"})
    assert result.is_error
    assert "\u202e" not in text_of(result)
    assert "\x1b" not in text_of(result)


async def test_a_query_that_runs_too_long_is_told_apart_from_one_that_waited(tmp_path: Any, era: str) -> None:
    with open_store(tmp_path / "slow.duckdb", limits=StoreLimits(query_timeout_s=0.2)) as store:
        sql = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 7"
        result = await ask(store, ANALYSIS, {"sql": sql}, era=era)
    assert result.is_error
    assert "ran longer than 0.2 s and was stopped; narrow it" in text_of(result)
    assert "the query did start" in text_of(result)


async def test_an_error_inside_the_server_tells_the_client_nothing_else(era: str) -> None:
    class Broken:
        def query(self, *_: object, **__: object) -> None:
            raise RuntimeError("the password is hunter2")

    result = await ask(Broken(), ANALYSIS, {"sql": "SELECT 1"}, era=era)
    assert result.is_error
    assert text_of(result) == f"{ANALYSIS} failed: an error inside the server"
