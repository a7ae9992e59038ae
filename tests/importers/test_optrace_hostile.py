"""Files that are broken, lie or attack: one clear line, and no events."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.optrace import table as optrace_table
from ingero_mcp.importers.optrace import trace as optrace
from ingero_mcp.importers.registry import open_file
from tests.importers.optrace_job import Job, with_column, write

JOB = Job(dp=2, pp=3, tp=2)
TABLE = JOB.table()
META = JOB.meta()


def refusal(path: Path, read: Callable[[Path], object] = open_file) -> str:
    """The message of the refusal, which is one printable line that names the file."""
    with pytest.raises(ImportFileError) as caught:
        read(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1200
    return message


def first(name: str, value: object) -> Iterable[object]:
    """The column `name` with its first value replaced."""
    return [value, *TABLE.column(name).to_pylist()[1:]]


@pytest.mark.parametrize(
    ("column", "value", "kind", "said"),
    [
        ("step", 10**18, None, "column step holds 1000000000000000000, possible are 0 to 1000000000"),
        ("step", -1, None, "column step holds -1"),
        ("dp_rank", 2, None, "column dp_rank holds 2, possible are 0 to 1"),
        ("dp_rank", -1, None, "column dp_rank holds -1"),
        ("stage", 3, None, "column stage holds 3, possible are 0 to 2"),
        ("rank", 12, None, "column rank holds 12, possible are 0 to 11"),
        ("rank", 2**63, pa.uint64(), "column rank holds 9223372036854775808"),
        ("rank", 6, None, "rank 6 is at"),
        ("rank", 11, None, "ranks 11 and 0 are both at stage 0, dp_rank 0"),
        ("seq_id", 2**31 - 1, None, "column seq_id holds 2147483647"),
        ("mc", 1, None, "column mc holds 1, possible are -1 to 0"),
        ("mb_id", 2_000_000, pa.int32(), "column mb_id holds 2000000"),
        ("duration", -0.5, None, "column duration holds -0.5, possible are 0 to 86400 seconds"),
        ("duration", float("nan"), None, "column duration holds NaN or an infinity"),
        ("duration", float("inf"), None, "column duration holds NaN or an infinity"),
        ("duration", 1e30, None, "column duration holds 1e+30"),
        ("start_ts", -1.0, None, "column start_ts holds -1"),
        ("start_ts", float("-inf"), None, "column start_ts holds NaN or an infinity"),
        ("optype", "", None, "column optype holds '', not the name of an operation"),
        ("optype", "a\nb", None, "column optype holds 'a\\nb', not the name of an operation"),
        ("optype", "x" * 65, None, "not the name of an operation"),
        ("optype", "grads-reduce-scatter", None, "more than once"),
        *((name, None, None, f"column {name} is empty in 1 rows") for name in optrace_table.NEEDED),
        *((name, None, None, f"column {name} is empty in 1 rows") for name in optrace_table.OPTIONAL),
    ],
)
def test_a_value_that_cannot_be_true_is_named(
    tmp_path: Path, column: str, value: object, kind: pa.DataType | None, said: str
) -> None:
    message = refusal(write(tmp_path, with_column(TABLE, column, first(column, value), kind), META))
    assert message.startswith("trace-job.parquet: ")
    assert said in message
    assert message.endswith("nothing was stored")


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        ("rank", pa.string(), "column rank is string, needed are integers"),
        ("rank", pa.float64(), "column rank is double, needed are integers"),
        ("step", pa.timestamp("ns"), "column step is timestamp[ns], needed are integers"),
        ("mb_id", pa.bool_(), "column mb_id is bool, needed are integers"),
        ("duration", pa.int64(), "column duration is int64, needed are seconds as float or double"),
        ("start_ts", pa.string(), "column start_ts is string"),
        ("optype", pa.int32(), "column optype is int32, needed are strings"),
        ("optype", pa.binary(), "needed are strings"),
        ("stage", pa.list_(pa.int8()), "column stage is list"),
        ("dp_rank", pa.struct([("x", pa.int8())]), "column dp_rank is struct"),
    ],
)
def test_a_column_of_the_wrong_type_is_named_with_the_right_one(
    tmp_path: Path, column: str, kind: pa.DataType, said: str
) -> None:
    nothing = pa.nulls(len(TABLE), kind)
    table = TABLE.set_column(TABLE.schema.get_field_index(column), column, nothing)
    assert said in refusal(write(tmp_path, table, META))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_any_kind_of_strings_will_do_for_names(tmp_path: Path, kind: pa.DataType) -> None:
    names = TABLE.column("optype").cast(kind)
    table = TABLE.set_column(TABLE.schema.get_field_index("optype"), "optype", names)
    assert open_file(write(tmp_path, table, META)).rows == len(TABLE)


def test_doubles_and_wide_integers_will_do_for_numbers(tmp_path: Path) -> None:
    table = TABLE
    for name in ("rank", "stage", "dp_rank", "seq_id"):
        table = with_column(table, name, table.column(name).to_pylist(), pa.uint64())
    for name in ("start_ts", "duration"):
        table = with_column(table, name, table.column(name).to_pylist(), pa.float64())
    assert open_file(write(tmp_path, table, META)).rows == len(TABLE)


def test_parquet_of_another_shape_is_told_which_columns_it_lacks(tmp_path: Path) -> None:
    path = write(tmp_path, TABLE.drop_columns(["optype", "seq_id"]), META)
    assert "without the columns optype, seq_id" in refusal(path)
    assert "without the columns optype, seq_id" in refusal(path, optrace.read)
    other = tmp_path / "taxi.parquet"
    pq.write_table(pa.table({"fare": [1.0]}), other)
    assert "dp_rank, stage, rank, step, optype, start_ts, duration, seq_id" in refusal(other)
    assert not optrace.detect(other)


def test_two_columns_of_one_name_are_none(tmp_path: Path) -> None:
    table = TABLE.append_column("rank", TABLE.column("rank"))
    assert "without the columns rank" in refusal(write(tmp_path, table, META))


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    assert "holds no rows" in refusal(write(tmp_path, TABLE.slice(0, 0), META))


def test_more_rows_than_are_read_are_refused_by_the_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optrace_table, "MAX_ROWS", len(TABLE) - 1)
    assert f"claims {len(TABLE)} rows" in refusal(write(tmp_path, TABLE, META))


def test_years_of_steps_are_refused(tmp_path: Path) -> None:
    rows = 5_000
    steps = pa.table(
        {
            "dp_rank": pa.repeat(0, rows), "stage": pa.repeat(0, rows), "rank": pa.repeat(0, rows),
            "step": list(range(rows)), "optype": pa.repeat("optimizer", rows), "start_ts": pa.repeat(86_400.0, rows),
            "duration": pa.repeat(86_400.0, rows), "seq_id": pa.repeat(0, rows),
        }
    )  # fmt: skip
    assert "5000 steps would last longer than ten years" in refusal(write(tmp_path, steps, META))


def test_a_long_name_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = with_column(TABLE, "optype", first("optype", "x" * (16 << 20)))
    path = write(tmp_path, bomb, META, compression="zstd", write_statistics=False)
    assert path.stat().st_size < 100_000
    assert f"bytes for {len(TABLE)} rows" in refusal(path)


def test_delta_encoded_names_are_refused_because_they_can_grow_without_limit(tmp_path: Path) -> None:
    # Such an encoding stores what changes: a thousand names of 64 kB fit into a file that is hardly larger than one.
    names = (f"{'x' * 65_536}{index:04}" for index in range(len(TABLE)))
    path = write(
        tmp_path,
        with_column(TABLE, "optype", names),
        META,
        use_dictionary=False,
        column_encoding={"optype": "DELTA_BYTE_ARRAY"},
        write_statistics=False,
    )
    assert path.stat().st_size < 100_000
    refusal(path)


def test_too_many_names_are_refused(tmp_path: Path) -> None:
    names = (f"op-{index}" for index in range(len(TABLE)))
    assert "different names, at most are 64" in refusal(write(tmp_path, with_column(TABLE, "optype", names), META))


def test_names_that_are_not_text_are_refused(tmp_path: Path) -> None:
    names = pa.array([b"\xff\xfe"] * len(TABLE), pa.binary())
    not_text = pa.StringArray.from_buffers(len(TABLE), names.buffers()[1], names.buffers()[2])
    table = TABLE.set_column(TABLE.schema.get_field_index("optype"), "optype", not_text)
    refusal(write(tmp_path, table, META))


def test_an_embedding_in_the_middle_of_the_pipeline_is_refused(tmp_path: Path) -> None:
    names = [
        "embedding-grads-all-reduce" if row["optype"] == "optimizer" and row["stage"] == 1 else row["optype"]
        for row in TABLE.to_pylist()
    ]
    assert "only the first and the last stage" in refusal(write(tmp_path, with_column(TABLE, "optype", names), META))


@given(st.integers(0, 1 << 16), st.binary(min_size=0, max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_cut_or_damaged_file_is_refused_or_read_but_never_crashes(place: int, patch: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder), TABLE, META)
        data = path.read_bytes()
        place %= len(data)
        # No patch: the file ends here.
        path.write_bytes(data[:place] + patch + data[place + len(patch) :] if patch else data[:place])
        try:
            result = open_file(path)
        except ImportFileError as error:
            assert str(error).isprintable()
        else:
            assert sum(len(batch) for batch in result.batches) == result.rows


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"PAR1" + bytes(100) + b"PAR1", b"SQLite format 3\0"])
def test_what_is_not_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace-job.parquet"
    path.write_bytes(content)
    assert "Parquet" in refusal(path)
    assert not optrace.detect(path)


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "absent.parquet", tmp_path / "fifo"):
        assert "not a file" in refusal(path)


def test_a_file_name_cannot_forge_output(tmp_path: Path) -> None:
    path = tmp_path / "trace-\x1b[31m\nOK, 5 rows stored.parquet"
    path.write_bytes(b"nothing")
    assert "\x1b" not in refusal(path)


def test_a_trace_is_known_by_its_content(tmp_path: Path) -> None:
    path = write(tmp_path, TABLE, META).rename(tmp_path / "trace-job.db")
    assert optrace.detect(path)
    assert open_file(path).kind == "op trace"


def test_a_trace_without_layout_is_told_which_file_and_keys(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, TABLE, None))
    for expected in ("meta-job.yaml", "trial_name:", "run_id:", "dp_size:", "pp_size:", "tp_size:", "world_size:"):
        assert expected in message


def test_a_layout_may_have_the_name_of_its_trace(tmp_path: Path) -> None:
    path = write(tmp_path, TABLE, META)
    (tmp_path / "meta-job.yaml").rename(tmp_path / "trace-job.yaml")
    assert open_file(path).rows == len(TABLE)


def meta_with(**changes: object) -> str:
    return "".join(f"{key}: {value}\n" for key, value in (META | changes).items() if value is not None)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ("", "not a list of 'key: value' lines"),
        ("- dp_size\n", "not a list of 'key: value' lines"),
        ("dp_size: [", "not YAML"),
        ("\x00", "not YAML"),
        ("[" * 5_000, "not YAML"),
        ("a" * 70_000, "longer than 65536 bytes"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "trial_name must be"),
        (meta_with(trial_name=None), "trial_name must be 1 to 128 printable characters"),
        (meta_with(trial_name='"a\\nb"'), "trial_name must be 1 to 128 printable characters"),
        (meta_with(trial_name="x" * 129), "trial_name must be 1 to 128 printable characters"),
        (meta_with(dp_size=None), "dp_size is missing"),
        (meta_with(dp_size=-2), "dp_size is '-2', accepted are 1 to"),
        (meta_with(dp_size=0), "dp_size is '0', accepted are 1 to"),
        (meta_with(dp_size="two"), "dp_size is 'two'"),
        (meta_with(dp_size="1" * 5_000), "dp_size is '1111"),
        (meta_with(dp_size="{a: b}"), "dp_size is missing"),
        (meta_with(run_id=-1), "run_id is '-1'"),
        (meta_with(world_size=64), "dp_size * pp_size * tp_size * dsp_size is 12, world_size 64"),
        (meta_with(dp_size=2**20, pp_size=2**20), "world_size 12"),
    ],
)
def test_a_layout_that_cannot_be_true_is_refused_with_an_example(tmp_path: Path, meta: str, said: str) -> None:
    message = refusal(write(tmp_path, TABLE, meta))
    assert said in message
    assert "trial_name: my-job" in message


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_no_text_in_place_of_a_layout_does_harm(text: str) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder), TABLE, None)
        (Path(folder) / "meta-job.yaml").write_text(text, encoding="utf-8")
        refusal(path)


@given(
    st.sampled_from([*optrace_table.NEEDED, *optrace_table.OPTIONAL]),
    st.integers(0, len(TABLE) - 1),
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=100)),
)
@settings(max_examples=150, deadline=None)
def test_no_single_value_does_harm(column: str, row: int, value: Any) -> None:
    values = TABLE.column(column).to_pylist()
    values[row] = value
    try:
        array = pa.array(values, TABLE.schema.field(column).type)
    except (pa.ArrowException, OverflowError):
        return
    with TemporaryDirectory() as folder:
        index = TABLE.schema.get_field_index(column)
        path = write(Path(folder), TABLE.set_column(index, column, array), META)
        try:
            events = pa.Table.from_batches(list(open_file(path).batches))
        except ImportFileError as error:
            assert str(error).isprintable()
        else:
            assert len(events) == len(TABLE)
