"""Times and identities of a profiler trace: bases, units, types of numbers; rank, host and job."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero_mcp.importers.imported import Names
from ingero_mcp.importers.kineto.time_base import EPOCH_NS
from ingero_mcp.importers.kineto.units import MOST_NS, integer, nanoseconds
from tests.importers.kineto_job import BASE_NS, Job, document, kernel
from tests.importers.test_kineto import attrs, events_of, named, read

ABSOLUTE_US = BASE_NS // 1000


def times(folder: Path, *events: object, **members: object) -> list[int]:
    return [
        row["timestamp_ns"] for row in named(events_of(read(folder, document(*events, **members))), "ncclAllReduce")
    ]


def test_a_base_is_added_exactly(tmp_path: Path) -> None:
    events = [kernel(0.125), kernel("11560000.125", "60000.000"), kernel(1.5e3), kernel("2000"), kernel(-0.5)]
    found = [time - BASE_NS for time in times(tmp_path, *events, baseTimeNanoseconds=str(BASE_NS + 7))]
    assert found == [-493, 132, 1_500_007, 2_000_007, 11_560_000_132]


def test_large_absolute_times_keep_their_digits(tmp_path: Path) -> None:
    text = f"{ABSOLUTE_US}.987"
    (time,) = times(tmp_path, kernel(text), baseTimeNanoseconds=None)
    assert time == BASE_NS + 987


@given(st.integers(0, 10**18), st.integers(0, 999))
def test_microseconds_become_nanoseconds_without_loss(whole: int, fraction: int) -> None:
    expected = whole * 1000 + fraction
    texts = [f"{whole}.{fraction:03}", f"{Decimal(expected).scaleb(-3):E}", f"{whole}.{fraction:03}000"]
    assert {nanoseconds(text) for text in texts} == {expected if expected < MOST_NS else None}


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "1.2.3", "1_000", "0x10", "nan", "inf", "1e999999999", "٣", "9" * 50, " 1", None, True, 5, {}],
)
def test_what_is_no_number_of_microseconds_is_none(text: object) -> None:
    assert nanoseconds(text) is None


@pytest.mark.parametrize("text", ["1.5", "-1", "", "9" * 25, "1e3", None, True, 5])
def test_what_is_no_integer_is_none(text: object) -> None:
    assert integer(text) is None


def test_a_trace_without_a_base_is_laid_at_a_fixed_date_and_says_so(tmp_path: Path) -> None:
    result = read(tmp_path, document(kernel(0.125), kernel(10), baseTimeNanoseconds=None))
    rows = named(events_of(result), "ncclAllReduce")
    assert [row["timestamp_ns"] - EPOCH_NS for row in rows] == [125, 10_000]
    assert {attrs(row)["ingero.time_base"] for row in rows} == {"relative"}
    assert any("cannot be compared with those of other files" in text for text in result.warnings)


@pytest.mark.parametrize("base", [0, 5_000_000, "soon", [1], -1])
def test_a_base_that_is_no_time_of_day_is_not_believed(tmp_path: Path, base: object) -> None:
    result = read(tmp_path, document(kernel(3), baseTimeNanoseconds=base))
    (row,) = named(events_of(result), "ncclAllReduce")
    assert row["timestamp_ns"] == EPOCH_NS + 3000
    assert attrs(row)["ingero.time_base"] == "relative"
    assert any("baseTimeNanoseconds" in text for text in result.warnings)


@pytest.mark.parametrize("job", [Job(relative=True), Job(relative=False)])
def test_with_a_known_base_no_row_is_marked_as_relative(tmp_path: Path, job: Job) -> None:
    rows = events_of(read(tmp_path, job.trace(0)))
    assert all("ingero.time_base" not in attrs(row) for row in rows)
    assert min(row["timestamp_ns"] for row in rows) == BASE_NS


def test_a_base_is_not_added_to_absolute_times(tmp_path: Path) -> None:
    result = read(tmp_path, document(kernel(ABSOLUTE_US)))
    (row,) = named(events_of(result), "ncclAllReduce")
    assert row["timestamp_ns"] == BASE_NS
    assert any("which is not added" in text for text in result.warnings)


def test_single_events_at_impossible_times_are_left_out_and_counted(tmp_path: Path) -> None:
    events = [kernel(ABSOLUTE_US), kernel(ABSOLUTE_US + 1), kernel(ABSOLUTE_US + 2), kernel(5, 5), kernel(0, 0)]
    result = read(tmp_path, document(*events, baseTimeNanoseconds=None))
    assert len(named(events_of(result), "ncclAllReduce")) == 3
    assert "1 events with ts 0 and dur 0 were skipped" in result.warnings
    assert any(text.startswith("2 events at impossible times") for text in result.warnings)


def test_an_event_without_an_end_has_no_duration(tmp_path: Path) -> None:
    (row,) = named(events_of(read(tmp_path, document(kernel(1, None)))), "ncclAllReduce")
    assert row["duration_ns"] is None


@pytest.mark.parametrize(("name", "rank"), [
    ("rank-1.json", 1), ("rank0.pt.trace.json", 0), ("sampled_rank-1.json.gz", 1), ("trace_rank_001.json", 1),
    ("Rank1-20250101.json", 1), ("1.json", 1), ("step5_1.json", 1),
    ("trace.json", None), ("profile_77.json", None), ("rank9.json", None),
    ("host_12.1682725898236567.pt.trace.json", None),
])  # fmt: skip
def test_the_rank_is_taken_from_the_name_where_the_trace_does_not_tell_it(
    tmp_path: Path, name: str, rank: int | None
) -> None:
    result = read(tmp_path, document(kernel(1), distributedInfo={"world_size": 2}), name)
    assert {row["rank"] for row in events_of(result)} == {rank}
    assert result.ranks == (0 if rank is None else 1)
    assert any("rank is empty" in text for text in result.warnings) == (rank is None)


def test_the_trace_itself_is_believed_before_its_name(tmp_path: Path) -> None:
    result = read(tmp_path, document(kernel(1), distributedInfo={"rank": "1", "world_size": "2"}), "rank0.json")
    assert {(row["rank"], row["world_size"]) for row in events_of(result)} == {(1, 2)}


def test_the_one_member_that_all_groups_share_wrote_the_trace(tmp_path: Path) -> None:
    groups = [("a", "[4, 5]"), ("b", "[1, 5, 9]")]
    events = [kernel(ts, **{"Process Group Name": name, "Process Group Ranks": ranks}) for ts, (name, ranks) in
              enumerate(groups, 1)]  # fmt: skip
    assert {row["rank"] for row in events_of(read(tmp_path, document(*events, distributedInfo=None)))} == {5}
    assert {row["rank"] for row in events_of(read(tmp_path, document(*events[:1], distributedInfo=None)))} == {None}


def test_the_size_of_the_job_is_that_of_its_default_group(tmp_path: Path) -> None:
    one = kernel(1, **{"Process Group Description": "default_pg", "Group size": 64})
    assert read(tmp_path, document(one, distributedInfo=None)).world_size == 64


def test_copies_named_after_other_ranks_are_other_traces(tmp_path: Path) -> None:
    content = document(kernel(1), distributedInfo=None)
    digests = [read(tmp_path, content, name).digest for name in ("rank0.json", "rank1.json", "a.json", "b.json")]
    assert len(set(digests)) == 3
    assert digests[2] == digests[3]


@pytest.mark.parametrize(("name", "members", "node"), [
    ("gpu-7.site_4312.1682725898236567.pt.trace.json", {}, "gpu-7.site"),
    ("trace.json", {"hostname": "gpu-8"}, "gpu-8"),
    ("trace.json", {"traceName": "/tmp/p/gpu-9_4312.1682725898236567.pt.trace.json"}, "gpu-9"),
    ("trace.json", {"hostname": "a:b"}, "given"),
    ("trace.json", {"hostname": ["x"]}, "given"),
    ("rank_0.pt.trace.json", {}, "given"),
])  # fmt: skip
def test_the_host_is_what_the_trace_says_else_what_is_given(
    tmp_path: Path, name: str, members: dict[str, Any], node: str
) -> None:
    result = read(tmp_path, document(kernel(1), **members), name, Names(node="given", cluster="c"))
    assert {(row["node_id"], row["cluster_id"]) for row in events_of(result)} == {(node, "c")}


def test_the_job_is_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / ("run\n7" + "x" * 200)
    folder.mkdir()
    (row, *_) = events_of(read(folder, document(kernel(1))))
    assert row["job_id"].startswith("kineto:run 7xxx")
    assert row["job_id"].isprintable()
    assert len(row["job_id"]) < 130
