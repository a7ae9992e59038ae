"""What to write in place of what people are used to: the habits of other dialects, by kind, as data.

The keys are what somebody writes; the values what this engine understands. Nothing here allows anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Instead:
    """What to do, in a sentence, and corrected SQL if there is a form that is always right."""

    hint: str
    example: str = ""


_AT: Final = "make_timestamp_ns(timestamp_ns)"
_CLOCK: Final = Instead("Use strftime on a timestamp.", f"strftime({_AT}, '%Y-%m-%d %H:%M:%S')")
_MOMENT: Final = Instead("timestamp_ns is Unix nanoseconds.", _AT)
_NOW: Final = Instead(
    "Use now(), or epoch_ns(now()) to compare with timestamp_ns.", "epoch_ns(now() - INTERVAL 1 HOUR)"
)
_SHIFT: Final = Instead("Add or subtract an INTERVAL.", "now() - INTERVAL 1 HOUR")
_BETWEEN: Final = Instead("Use date_diff, or subtract nanoseconds.", "date_diff('second', a, b)")
_TRUNC: Final = Instead("Use date_trunc or time_bucket.", f"time_bucket(INTERVAL 1 MINUTE, {_AT})")
_JSON: Final = Instead("Use json_extract_string, or ->>.", "json_extract_string(attrs_json, '$.severity')")
_QUANTILE: Final = Instead("Use quantile_cont or approx_quantile.", "quantile_cont(duration_ns, 0.99)")
_COALESCE: Final = Instead("Use coalesce.", "coalesce(rank, 0)")
_IF: Final = Instead("Use if or CASE.", "if(rank = 0, 'first', 'other')")
_DISTINCT: Final = Instead("Use count(DISTINCT ...) or approx_count_distinct.", "count(DISTINCT node_id)")
_STRPOS: Final = Instead("Use strpos.", "strpos(node_id, '-')")
_REGEXP: Final = Instead("Use regexp_matches or ~.", "regexp_matches(node_id, '^gpu-')")
_CAST: Final = Instead("Use CAST or TRY_CAST.", "TRY_CAST(node_id AS BIGINT)")
_LIST: Final = Instead("Use list, or string_agg for text.", "list(DISTINCT rank ORDER BY rank)")
_DIVIDE: Final = Instead("A division by zero gives NULL; nullif says so.", "sum(bytes) / nullif(count(*), 0)")
_FORMAT: Final = Instead("Use || or concat.", "node_id || ':' || rank")
_ROUND: Final = Instead("Use round, or trunc.", "round(duration_ns / 1e6, 2)")
_SERIES: Final = Instead("Use it in FROM.", "SELECT i FROM generate_series(1, 10) AS r(i)")
_BUCKET: Final = Instead("Divide and round down.", "duration_ns // 1000000 * 1000000 AS bucket")
_SPLIT: Final = Instead("Use split_part or string_split.", "split_part(node_id, '-', 1)")
_STEP: Final = Instead("Use lag.", "value_double - lag(value_double) OVER (PARTITION BY node_id ORDER BY timestamp_ns)")
_EACH: Final = Instead("Use json_each in FROM.", "SELECT j.key, j.value FROM events e, json_each(e.attrs_json) j")

_FUNCTIONS: Final = (
    # of DuckDB, but refused: where a form of its own is clearer than what its class says
    ("lpad", Instead("To pad, cut.", "right('000' || rank, 3)")),
    ("rpad", Instead("To pad, cut.", "left(node_id || '        ', 8)")),
    ("repeat", Instead("Write the text out: functions that make text of any length are refused.")),
    ("printf format", _FORMAT),
    ("range", Instead("Use it in FROM.", "SELECT i FROM range(10) AS r(i)")),
    ("generate_series generate_subscripts", _SERIES),
    ("list_resize array_resize", Instead("Use list_slice or list_concat.", "list_concat([1, 2], [3])")),
    ("glob", Instead("To match text use GLOB as an operator.", "node_id GLOB 'gpu-*'")),
    ("approx_top_k", Instead("Group and sort.", "SELECT rank, count(*) AS n FROM events GROUP BY ALL ORDER BY n DESC")),
    ("reservoir_quantile percentile_cont percentile_disc", _QUANTILE),
    ("json_structure json_group_structure", Instead("Use json_keys or json_type.", "json_keys(attrs_json)")),
    ("from_json json_transform json_transform_strict from_json_strict", _EACH),
    ("json_pretty", Instead("Return the value itself; the client can lay it out.", "attrs_json")),
    ("pg_size_pretty", Instead("Use format_bytes.", "format_bytes(bytes)")),
    ("pg_typeof", Instead("Use typeof.", "typeof(rank)")),
    ("equi_width_bins width_bucket bar", _BUCKET),
    ("regexp_split_to_table", Instead("Use string_split and unnest.", "unnest(string_split(node_id, '-'))")),
    ("variant_extract variant_extract_string", _JSON),
    ("version", Instead("What the server is, is in the answer of initialize.")),
    # of other engines
    ("date_format to_char format_timestamp format_datetime format_date formatdatetime to_varchar", _CLOCK),
    ("from_unixtime todatetime todatetime64 timestamp_seconds timestamp_micros timestamp_millis datetime", _MOMENT),
    ("fromunixtimestamp fromunixtimestamp64nano to_timestamp_ntz to_timestamp_ltz parse_timestamp todate", _MOMENT),
    ("getdate sysdate unix_timestamp current_timestamp sysdatetime getutcdate curdate curtime utc_timestamp", _NOW),
    ("localtime localtimestamp tounixtimestamp julianday clock_timestamp statement_timestamp unix_seconds", _NOW),
    ("dateadd timestampadd timestamp_add timestamp_sub adddate subdate datetime_add datetime_sub", _SHIFT),
    ("addhours addminutes addseconds subtracthours subtractminutes subtractdays adddays", _SHIFT),
    ("timestampdiff timestamp_diff datetime_diff months_between timediff", _BETWEEN),
    ("timestamp_trunc datetime_trunc tostartofinterval tostartofminute tostartofhour tostartofday", _TRUNC),
    ("tostartoffiveminutes tostartoftenminutes tostartofsecond tostartoffifteenminutes time_slice", _TRUNC),
    ("json_extract_scalar get_json_object jsonextractstring jsonextractint jsonextractfloat json_query", _JSON),
    ("jsonextract jsonextractraw jsonextractbool json_unquote get_path parse_json simplejsonextractstring", _JSON),
    ("visitparamextractstring json_get json_get_str jsonb_extract_path_text json_extract_array", _JSON),
    ("jsonb_each json_each_text jsonb_each_text jsonb_array_elements json_array_elements explode", _EACH),
    ("jsonb_object_keys json_object_keys jsonextractkeys", Instead("Use json_keys.", "unnest(json_keys(attrs_json))")),
    ("percentile percentile_approx approx_percentile approx_quantiles quantiles quantileexact", _QUANTILE),
    ("quantiletdigest quantiletiming quantileif apercentile approx_percentile_cont", _QUANTILE),
    ("nvl nvl2 zeroifnull isnull ifzero value_or nullifzero", _COALESCE),
    ("iff iif multiif decode_case", _IF),
    ("uniq uniqexact uniqcombined approx_distinct hll approx_count_distinct_ds count_distinct", _DISTINCT),
    ("charindex locate position_of positioncaseinsensitive indexof", _STRPOS),
    ("regexp_like regexp_contains rlike regexp match regexp_instr regexp_count", _REGEXP),
    ("regexp_substr regexp_extract_groups", Instead("Use regexp_extract.", "regexp_extract(node_id, '[0-9]+')")),
    ("convert safe_cast to_number to_varchar tostring toint64 tofloat64 tointeger str try_convert toint32", _CAST),
    ("collect_list collect_set grouparray groupuniqarray arrayagg array_unique_agg", _LIST),
    ("safe_divide div0 divide_safe div", _DIVIDE),
    ("sprintf format_string concat_format", _FORMAT),
    ("truncate to_fixed format_number", _ROUND),
    ("numbers sequence generate_array generate_timestamp_array", _SERIES),
    ("substring_index splitbychar splitbystring strtok", _SPLIT),
    ("rand rand64 newid", Instead("Use random(), or USING SAMPLE.", "SELECT * FROM events USING SAMPLE 10%")),
    ("sumif", Instead("Use FILTER.", "sum(bytes) FILTER (WHERE rank = 0)")),
    ("avgif minif maxif anyif", Instead("Use FILTER.", "avg(duration_ns) FILTER (WHERE rank = 0)")),
    ("percent_of ratio_to_report", Instead("Divide by a window.", "bytes / sum(bytes) OVER ()")),
    ("offset safe_offset ordinal", Instead("Lists are counted from 1, in square brackets.", "[10, 20][1]")),
    ("cast_as_text to_string", Instead("Use a cast.", "rank::VARCHAR")),
    ("runningdifference deltasum", _STEP),
    ("rate irate increase", _STEP),
    ("@@", Instead("Facts about the session are not available.")),
)  # fmt: skip
FUNCTIONS: Final = {name: instead for names, instead in _FUNCTIONS for name in names.split()}

_CATALOG: Final = Instead(
    "The relations and their columns are in the resource fleet://schema.", "SELECT * FROM events LIMIT 1"
)
_EVERYTHING: Final = Instead("Samples, spans and log records are all rows of events.", "SELECT * FROM events LIMIT 10")
_TABLES: Final = (
    ("tables columns schemata sqlite_master sqlite_schema pg_tables pg_class pg_attribute pg_catalog views", _CATALOG),
    ("duckdb_tables duckdb_columns duckdb_views pragma_table_info show describe", _CATALOG),
    ("metrics metric samples points gauges otel_metrics otel_metrics_gauge measurements timeseries", _EVERYTHING),
    ("spans span traces trace otel_traces logs log otel_logs records telemetry data event_log", _EVERYTHING),
    ("dual", Instead("FROM may be left out.", "SELECT 1")),
    ("ranks processes workers", Instead("Ranks are a column.", "SELECT DISTINCT node_id, rank FROM events")),
    ("hosts machines servers node", Instead("Hosts are nodes.", "SELECT * FROM nodes")),
    ("nccl collective allreduce nccl_events", Instead("Use collectives.", "SELECT * FROM collectives LIMIT 10")),
    ("cuda kernels cuda_events", Instead("Use cuda_calls.", "SELECT * FROM cuda_calls LIMIT 10")),
    ("stragglers", Instead("Call fleet.cluster.explain_stall.", "SELECT * FROM collectives WHERE is_last")),
)  # fmt: skip
TABLES: Final = {name: instead for names, instead in _TABLES for name in names.split()}

TYPES: Final = {
    "number": "DECIMAL(18, 3)",
    "unsigned": "UBIGINT",
    "signed integer": "BIGINT",
    "varchar2": "VARCHAR",
    "nvarchar2": "VARCHAR",
    "nchar": "VARCHAR",
    "character": "VARCHAR",
    "clob": "VARCHAR",
    "float64": "DOUBLE",
    "float32": "FLOAT",
    "money": "DECIMAL(18, 2)",
    "serial": "BIGINT",
    "jsonb": "JSON",
    "variant": "JSON",
    "object": "JSON",
    "datetime64": "TIMESTAMP",
    "datetime2": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP",
    "timestamp_ltz": "TIMESTAMPTZ",
    "timestamp_tz": "TIMESTAMPTZ",
    "byteint": "TINYINT",
}

STATEMENTS: Final = {
    "SHOW": _CATALOG,
    "DESCRIBE": _CATALOG,
    "DESC": _CATALOG,
    "SUMMARIZE": Instead("Write the aggregates.", "SELECT min(duration_ns), max(duration_ns), count(*) FROM events"),
    "PRAGMA": _CATALOG,
    "CALL": _CATALOG,
    "EXPLAIN": Instead("Send the query itself; one that is too slow is stopped and says so."),
    "ANALYZE": Instead("Send the query itself."),
    "SET": Instead("Settings are fixed; times are UTC."),
    "USE": Instead("Relations stand without a schema.", "SELECT * FROM events LIMIT 10"),
    "DECLARE": Instead("Write the value itself where it is needed."),
    "BEGIN": Instead("Send the SELECT alone: each query is a transaction of its own."),
    "PREPARE": Instead("Send the query itself with its values written out."),
    "EXECUTE": Instead("Send the query itself with its values written out."),
}
"""Statements that are no query and have an answer, by their first word."""


@dataclass(frozen=True, slots=True)
class Slip:
    """Text that DuckDB cannot read, as a pattern over the place where it stopped, and what to write."""

    pattern: re.Pattern[str]
    instead: Instead


def _slip(pattern: str, hint: str, example: str = "") -> Slip:
    return Slip(re.compile(pattern, re.IGNORECASE | re.DOTALL), Instead(hint, example))


SLIPS: Final = (
    _slip(r"```", "Send the SQL without the marks of Markdown around it.", "SELECT count(*) FROM events"),
    _slip(r"[\u2018-\u201f\u00ab\u00bb]", "Text stands in straight single quotes.", "node_id = 'gpu-1'"),
    _slip(r"\bTOP\s*\(?\s*\d+", "Use LIMIT at the end.", "SELECT * FROM events LIMIT 10"),
    _slip(r"\bLIMIT\s+\d+\s*,\s*\d+", "Use LIMIT count OFFSET start.", "LIMIT 10 OFFSET 5"),
    _slip(r"\bI?LIKE\s+(ANY|ALL|SOME)\b", "Use OR, or one regular expression.", "regexp_matches(node_id, 'a|b', 'i')"),
    _slip(r"\b(REGEXP|RLIKE)\b", _REGEXP.hint, _REGEXP.example),
    _slip(r"\bSEPARATOR\b", "The separator is the second argument.", "string_agg(node_id, ',' ORDER BY node_id)"),
    _slip(
        r"\b(LISTAGG|STRING_AGG|GROUP_CONCAT|ARRAY_AGG)\b.*WITHIN\s+GROUP",
        "The order stands inside the brackets.",
        "string_agg(node_id, ',' ORDER BY node_id)",
    ),
    _slip(
        r"\bWITHIN\s+GROUP\b",
        "WITHIN GROUP (ORDER BY ...) follows percentile_cont(0.99); quantile_cont is shorter.",
        "quantile_cont(duration_ns, 0.99)",
    ),
    _slip(r"\bORDER\s+BY\b[^()]*\bLIMIT\b[^()]*\)", "Cut the list that comes out.", "list(rank ORDER BY rank)[1:5]"),
    _slip(r"\w+\s*\([^()]*\)\s*\(", "All arguments stand in one pair of brackets.", "quantile_cont(duration_ns, 0.99)"),
    _slip(r"\[\s*(SAFE_)?(OFFSET|ORDINAL)\s*\(", "Lists are counted from 1, in square brackets.", "[10, 20][1]"),
    _slip(r"\bARRAY\s+JOIN\b", "Use unnest or json_each in FROM.", _EACH.example),
    _slip(r"\bPREWHERE\b", "Use WHERE.", "SELECT * FROM events WHERE rank = 1"),
    _slip(r"\bFORMAT\s+\w+|\bSETTINGS\s+\w+", "Leave it out: the tool sets the form of the answer."),
    _slip(r"\bFOR\s+(UPDATE|SHARE|JSON|XML)\b", "Leave it out: this only reads."),
    _slip(r"\bWITH\s*\(\s*NOLOCK|\bNOLOCK\b", "Leave it out: readers never wait for locks."),
    _slip(
        r"\(\s*\+\s*\)", "Use LEFT JOIN ... ON.", "SELECT * FROM events e LEFT JOIN nodes n ON n.node_id = e.node_id"
    ),
    _slip(r"\bCONNECT\s+BY\b|\bSTART\s+WITH\b", "Use a self-join for a parent."),
    _slip(
        r"\b(CROSS|OUTER)\s+APPLY\b", "Use LATERAL.", "SELECT * FROM events e, LATERAL (SELECT e.rank + 1 AS next) x"
    ),
    _slip(r"\bDISTINCT\s+ON\s+\w", "The columns stand in brackets.", "SELECT DISTINCT ON (node_id) * FROM events"),
    _slip(r"\bINTERVAL\s+\(?\s*-?\d+\s*[smhd]\b", "Write the unit out.", "INTERVAL 5 MINUTE"),
    _slip(r"\bVARCHAR\s*\(\s*MAX\s*\)", "Leave the length out.", "CAST(rank AS VARCHAR)"),
    _slip(r"\bSHOW\s+\w+", _CATALOG.hint, _CATALOG.example),
    _slip(r"[:@]\w+|\{\{?\s*\w+\s*\}?\}|%\(?\w|\$\{", "Write the value itself; there are no parameters.", "rank = 5"),
    _slip(r"^\s*[\w ,']+\?\s*$", "Write SQL; questions in words are for fleet.cluster.explain_stall."),
)
"""Looked for in this order; the first that touches the place counts."""

KEYWORDS: Final = frozenset(
    """
    select from where group order having limit offset qualify union intersect except join left right inner outer
    full cross asof using distinct between exists partition over window unpivot pivot values interval filter within
    """.split()  # noqa: SIM905
)
"""Words that are looked for where a word was misspelled."""
