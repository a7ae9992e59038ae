"""What becomes of the samples of an xpu_timer scrape."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.cli.import_file import put
from ingero_mcp.cli.main import main
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.registry import open_file
from ingero_mcp.importers.xpu_timer import scrape
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store

WRITTEN_S = 1_770_000_000
EXPOSER = """\
# HELP exposer_scrapes_total Number of times metrics were scraped
# TYPE exposer_scrapes_total counter
exposer_scrapes_total 17
# TYPE exposer_request_latencies summary
exposer_request_latencies_count 17
exposer_request_latencies{quantile="0.5"} 9
"""


def labels(rank: int, **more: str) -> str:
    named = {"ip": "10.0.0.9", "job_name": "job-1", "local_rank": str(rank % 8), "pod_name": "pod-1", "rank": str(rank)}
    return ",".join(f'{label}="{text}"' for label, text in sorted((named | more).items()))


def job(hanging: frozenset[int], ranks: int = 8, scrapes: int = 17) -> str:
    """A scrape of a node of `ranks` ranks, of which some hang."""
    latency = [f"XPU_TIMER_MM_KERNEL_AVG_LATENCY{{{labels(rank, dtype='bf16')}}} 3719.5" for rank in range(ranks)]
    hang = [f"XPU_TIMER_COMMON_HANG{{{labels(rank)}}} {int(rank in hanging)}" for rank in range(ranks)]
    gauges = ["# TYPE XPU_TIMER_MM_KERNEL_AVG_LATENCY gauge", *latency, "# TYPE XPU_TIMER_COMMON_HANG gauge", *hang]
    return EXPOSER.replace("17", str(scrapes)) + "\n".join(gauges) + "\n"


def write(path: Path, text: str, written_s: int = WRITTEN_S) -> Path:
    path.write_text(text)
    os.utime(path, (written_s, written_s))
    return path


def events_of(result: Import) -> list[dict[str, Any]]:
    batches = list(result.batches)
    assert all(batch.schema == ARROW_SCHEMA for batch in batches)
    events = pa.Table.from_batches(batches).to_pylist()
    assert len(events) == result.rows
    return events


def only(path: Path, line: str, names: Names | None = None) -> dict[str, Any]:
    [event] = events_of(open_file(write(path / "scrape", line + "\n"), names))
    return event


def test_a_sample_keeps_everything_that_it_says(tmp_path: Path) -> None:
    line = (
        'XPU_TIMER_COLL_KERNEL_BANDWIDTH{algorithm="RING_LL",ip="10.0.0.9",job_name="job-1",level="3",local_rank="1",'
        'operation="AllReduce",pod_name="pod-1",rank="9",small="0",transport="InterNode"} 41.25'
    )
    event = only(tmp_path, line, Names(node="not used", cluster="c1"))
    assert {key: value for key, value in event.items() if value is not None} == {
        "cluster_id": "c1",
        "node_id": "pod-1",
        "job_id": "job-1",
        "event_seq": event["event_seq"],
        "timestamp_ns": WRITTEN_S * 10**9,
        "source": "gpu",
        "metric_name": "xpu_timer.coll_kernel_bandwidth",
        "value_double": 41.25,
        "rank": 9,
        "local_rank": 1,
        "attrs_json": event["attrs_json"],
    }
    assert json.loads(event["attrs_json"]) == {
        "algorithm": "RING_LL",
        "ip": "10.0.0.9",
        "level": "3",
        "operation": "AllReduce",
        "small": "0",
        "transport": "InterNode",
    }


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        ("XPU_TIMER_COMMON_HANG", "xpu_timer.hang"),
        ("XPU_TIMER_COMMON_GC_COUNT", "xpu_timer.gc_count"),
        ("XPU_TIMER_MM_KERNEL_AVG_LATENCY", "xpu_timer.mm_kernel_avg_latency"),
        ("XPU_TIMER_MEMORY_COUNTER", "xpu_timer.memory_counter"),
    ],
)
def test_gauges_have_short_names(tmp_path: Path, metric: str, name: str) -> None:
    assert only(tmp_path, f"{metric} 1")["metric_name"] == name


@pytest.mark.parametrize("hanging", [frozenset(range(8)), frozenset(), frozenset({3})])
def test_the_hang_flag_of_every_rank_is_there(tmp_path: Path, hanging: frozenset[int]) -> None:
    result = open_file(write(tmp_path / "no_extension", job(hanging)))
    flags = {
        event["rank"]: event["value_double"] for event in events_of(result) if event["metric_name"].endswith("hang")
    }
    assert flags == {rank: float(rank in hanging) for rank in range(8)}
    assert (result.kind, result.rows, result.ranks, result.steps) == ("xpu_timer scrape", 16, 8, 0)
    assert result.world_size is None
    assert result.warnings == (
        "16 samples do not say their time; they are put at 2026-02-02 02:40:00 UTC, when the file was written",
        "3 samples of other metrics than XPU_TIMER_... were left out",
    )


def test_the_size_of_the_job_is_what_labels_say_and_not_how_many_ranks_there_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a", f"XPU_TIMER_COMMON_HANG{{{labels(0, world_size='64')}}} 1\n")
    result = open_file(path)
    assert result.world_size == 64
    assert [event["world_size"] for event in events_of(result)] == [64]


def test_a_time_in_the_line_is_its_time(tmp_path: Path) -> None:
    text = "XPU_TIMER_COMMON_HANG 1 1760000000123\nXPU_TIMER_COMMON_HANG 0 1760000060123\n"
    result = open_file(write(tmp_path / "a", text))
    assert [event["timestamp_ns"] for event in events_of(result)] == [1760000000123 * 10**6, 1760000060123 * 10**6]
    assert result.warnings == ()


@pytest.mark.parametrize("written_s", [0, 1, 32_503_680_000])
def test_a_date_of_the_file_that_cannot_be_is_not_used(tmp_path: Path, written_s: int) -> None:
    """Files that were unpacked may have any date."""
    result = open_file(write(tmp_path / "a", "XPU_TIMER_COMMON_HANG 1\n", written_s))
    [event] = events_of(result)
    assert event["timestamp_ns"] == 1_735_689_600 * 10**9
    assert "a fixed date" in result.warnings[0]


@pytest.mark.parametrize(
    ("text", "value"), [("NaN", math.nan), ("+Inf", math.inf), ("-Inf", -math.inf), ("1e3", 1000.0)]
)
def test_values_that_are_no_plain_numbers_are_kept(tmp_path: Path, text: str, value: float) -> None:
    found = only(tmp_path, f"XPU_TIMER_MM_KERNEL_FLOPS {text}")["value_double"]
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_names_that_were_not_set_are_not_names(tmp_path: Path) -> None:
    line = 'XPU_TIMER_COMMON_HANG{job_name="NOT_SET",local_rank="x",pod_name="NOT_SET",rank="-1"} 0'
    event = only(tmp_path, line, Names(node="told"))
    assert [event[name] for name in ("node_id", "job_id", "rank", "local_rank")] == ["told", None, None, None]
    kept = json.loads(event["attrs_json"])
    assert [kept[name] for name in ("rank", "local_rank", "pod_name")] == ["-1", "x", "NOT_SET"]


def test_a_pod_whose_name_would_break_the_ids_of_its_events_is_no_node(tmp_path: Path) -> None:
    event = only(tmp_path, 'XPU_TIMER_COMMON_HANG{pod_name="a:b",job_name="j:k"} 0')
    assert (event["node_id"], event["job_id"]) == ("unknown", "j:k")
    assert json.loads(event["attrs_json"]) == {"pod_name": "a:b"}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), st.text(max_size=20), max_size=6))
def test_no_label_is_lost_whatever_it_says(tmp_path: Path, given_labels: dict[str, str]) -> None:
    escape = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
    texts = {name: "".join(escape.get(letter, letter) for letter in text) for name, text in given_labels.items()}
    line = "XPU_TIMER_X{" + ",".join(f'{name}="{text}"' for name, text in texts.items()) + "} 1"
    (tmp_path / "scrape").write_text(line + "\n", newline="")
    [event] = events_of(scrape.read(tmp_path / "scrape"))
    kept = json.loads(event["attrs_json"])
    columns = {"pod_name": event["node_id"], "job_name": event["job_id"], "rank": str(event["rank"])}
    for name, text in given_labels.items():
        assert not text.isprintable() or (kept | columns)[name] == text or kept[name] == text
    assert event["attrs_json"].isprintable()


def test_scrapes_of_one_job_at_different_times_live_side_by_side(store: Store, tmp_path: Path) -> None:
    healthy = write(tmp_path / "10.00", job(frozenset(), scrapes=1), WRITTEN_S)
    stuck = write(tmp_path / "10.05", job(frozenset(range(8)), scrapes=2), WRITTEN_S + 300)
    assert [put(open_file(path), store) for path in (healthy, stuck)] == [16, 16]
    rows = store.query(
        check(
            "SELECT timestamp_ns // 1000000000, sum(value_double), count(DISTINCT rank) FROM events "
            "WHERE metric_name = 'xpu_timer.hang' AND job_id = 'job-1' GROUP BY 1 ORDER BY 1"
        ),
        limit=10,
    ).rows
    assert rows == [(WRITTEN_S, 0.0, 8), (WRITTEN_S + 300, 8.0, 8)]
    assert store.query(check("SELECT count(DISTINCT id) FROM events"), limit=1).rows == [(32,)]


def test_the_same_scrape_twice_adds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path / "a", job(frozenset({1})))
    copy = write(tmp_path / "b", job(frozenset({1})), WRITTEN_S + 5)
    database = str(tmp_path / "x.duckdb")
    for path, stored in ((first, 16), (first, 0), (copy, 0)):
        assert main(["import", str(path), "-d", database, "--json"]) == 0
        [fact] = json.loads(capsys.readouterr().out)["files"]
        assert (fact["kind"], fact["rows"], fact["stored"]) == ("xpu_timer scrape", 16, stored)
