"""What becomes of the events of a profiler trace, on generated jobs."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ingero_mcp.batches import ARROW_SCHEMA
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.kineto import events as kineto_events
from ingero_mcp.importers.kineto import trace as kineto
from ingero_mcp.importers.registry import open_file, sort_out
from tests.importers.kineto_job import BASE_NS, COLLECTIVE_STREAM, STEP_US, Job, document, kernel

NAMED = Job(style="named")


def read(folder: Path, content: object, name: str = "trace.json", names: Names | None = None) -> Import:
    path = folder / name
    path.write_text(json.dumps(content))
    return kineto.read(path, names)


def events_of(result: Import) -> list[dict[str, Any]]:
    batches = list(result.batches)
    assert all(batch.schema == ARROW_SCHEMA for batch in batches)
    rows = pa.Table.from_batches(batches, schema=ARROW_SCHEMA).to_pylist()
    assert len(rows) == result.rows
    return rows


def named(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["metric_name"] == name]


def attrs(row: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(row["attrs_json"])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("style", ["linked", "named", "numbered"])
def test_every_piece_of_work_becomes_one_row_and_operators_none(tmp_path: Path, style: Any) -> None:
    result = read(tmp_path, Job(style=style).trace(1))
    counts = Counter(row["metric_name"] for row in events_of(result))
    groups = {} if style == "linked" else {"nccl.communicator": 1}
    assert counts == groups | {
        "ncclAllReduce": 3,
        "gpu.kernel": 3,
        "gpu.memcpy": 3,
        "gpu.memset": 3,
        "cudaLaunchKernel": 6,
        "cudaMemcpyAsync": 3,
        "cudaStreamSynchronize": 3,
        "step": 3,
    }
    assert (result.kind, result.ranks, result.steps, result.world_size) == ("Kineto trace", 1, 3, 2)
    assert "not imported: 3 cpu_op, 3 python_function" in result.warnings


def test_rows_say_how_they_were_timed_and_where(tmp_path: Path) -> None:
    rows = events_of(read(tmp_path, NAMED.trace(1)))
    timed = {row["metric_name"]: (row["source"], row["timing_source"], row["pid"], row["tid"]) for row in rows}
    assert timed == {
        "ncclAllReduce": ("nccl", "kernel_gpu", 4001, None),
        "nccl.communicator": ("nccl", None, 4001, None),
        "gpu.kernel": ("gpu", "kernel_gpu", 4001, None),
        "gpu.memcpy": ("gpu", "kernel_gpu", 4001, None),
        "gpu.memset": ("gpu", "kernel_gpu", 4001, None),
        "cudaLaunchKernel": ("cuda", "host_api", 4001, 4001),
        "cudaMemcpyAsync": ("cuda", "host_api", 4001, 4001),
        "cudaStreamSynchronize": ("cuda", "host_sync", 4001, 4001),
        "step": ("host", "host_api", 4001, 4001),
    }
    assert {(row["rank"], row["world_size"], row["process"]) for row in rows} == {(1, 2, "python")}
    copy, compute = named(rows, "gpu.memcpy")[0], named(rows, "gpu.kernel")[0]
    assert (copy["bytes"], attrs(copy)["cuda.memcpy_kind"]) == (4096, "HostToDevice")
    assert attrs(compute)["gpu.kernel.name"].startswith("void at::native::vectorized_elementwise_kernel")
    assert attrs(compute)["cuda.stream"] == 7
    launch = named(rows, "cudaLaunchKernel")[0]
    assert attrs(launch)["cuda.correlation"] == attrs(compute)["cuda.correlation"]


@pytest.mark.parametrize(("name", "timing"), [
    ("cudaDeviceSynchronize", "host_sync"),
    ("cudaEventSynchronize", "host_sync"),
    ("cuCtxSynchronize", "host_sync"),
    ("cudaMemcpy", "host_sync"),
    ("cudaMemcpyAsync", "host_api"),
    ("cudaMalloc", "host_api"),
    ("cuLaunchKernel", "host_api"),
    ("hipStreamSynchronize", "host_sync"),
])  # fmt: skip
def test_calls_that_wait_are_told_from_calls_that_enqueue(tmp_path: Path, name: str, timing: str) -> None:
    call = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 2, "ts": 1, "dur": 2, "args": {}}
    (row,) = events_of(read(tmp_path, document(call)))
    source = "driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda"
    assert (row["metric_name"], row["source"], row["timing_source"]) == (name, source, timing)


def test_categories_of_old_versions_are_known(tmp_path: Path) -> None:
    events = [
        kernel(1, name="k"),
        kernel(2, name="Memcpy DtoH (Device -> Pageable)"),
        kernel(3, name="Memset (Device)"),
    ]
    for event, category in zip(events, ("Kernel", "Memcpy", "Memset"), strict=True):
        event["cat"] = category
    call = {"ph": "X", "cat": "Runtime", "name": "cudaMalloc", "pid": 1, "tid": 2, "ts": 4, "dur": 2, "args": {}}
    rows = events_of(read(tmp_path, document(*events, call)))
    assert [row["metric_name"] for row in rows] == ["gpu.kernel", "gpu.memcpy", "gpu.memset", "cudaMalloc"]


def test_rows_carry_the_step_in_which_they_begin(tmp_path: Path) -> None:
    rows = events_of(read(tmp_path, NAMED.trace(0)))
    steps = named(rows, "step")
    assert [row["step"] for row in steps] == [100, 101, 102]
    for row in rows:
        step = steps[row["step"] - 100]
        assert 0 <= row["timestamp_ns"] - step["timestamp_ns"] < step["duration_ns"]


def test_work_of_the_gpu_follows_the_steps_of_the_gpu(tmp_path: Path) -> None:
    def step(number: int, ts: int, category: str, tid: int) -> dict[str, Any]:
        name = f"ProfilerStep#{number}"
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": 100, "args": {}}

    host = [step(1, 0, "user_annotation", 50), step(2, 100, "user_annotation", 50)]
    gpu = [step(1, 60, "gpu_user_annotation", 7), step(2, 160, "gpu_user_annotation", 7)]
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaMalloc",
        "pid": 1,
        "tid": 50,
        "ts": 120,
        "dur": 1,
        "args": {},
    }
    late, elsewhere, after = kernel(120, name="k"), kernel(121, name="k", stream=9), kernel(300, name="k")
    rows = events_of(read(tmp_path, document(*host, *gpu, call, late, elsewhere, after)))
    assert [(row["metric_name"], row["step"]) for row in rows if row["metric_name"] != "step"] == [
        ("cudaMalloc", 2),
        ("gpu.kernel", 1),
        ("gpu.kernel", 1),
        ("gpu.kernel", None),
    ]
    # Without those of the host there is one row per step, over all streams.
    seen_twice = step(1, 40, "gpu_user_annotation", 9)
    rows = events_of(read(tmp_path, document(*gpu, seen_twice)))
    assert [(row["step"], row["timestamp_ns"] - BASE_NS, row["duration_ns"]) for row in rows] == [
        (1, 40_000, 120_000),
        (2, 160_000, 100_000),
    ]


def test_rows_come_in_time_order_with_numbers_taken_from_the_content(tmp_path: Path) -> None:
    first, again = read(tmp_path, NAMED.trace(0)), read(tmp_path, NAMED.trace(0))
    other = read(tmp_path, NAMED.trace(1))
    rows = events_of(first)
    assert [row["timestamp_ns"] for row in rows] == sorted(row["timestamp_ns"] for row in rows)
    seqs = [row["event_seq"] for row in rows]
    assert seqs == list(range(seqs[0], seqs[0] + len(rows)))
    assert max(seqs) < 1 << 51
    assert events_of(again) == rows
    assert first.digest == again.digest != other.digest
    assert not set(seqs) & {row["event_seq"] for row in events_of(other)}


def test_many_rows_come_in_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = events_of(read(tmp_path, NAMED.trace(0)))
    monkeypatch.setattr(kineto_events, "BATCH_ROWS", 7)
    assert events_of(read(tmp_path, NAMED.trace(0))) == whole


def test_gzipped_or_not_it_is_the_same_trace_whatever_its_name(tmp_path: Path) -> None:
    text = json.dumps(NAMED.trace(0)).encode()
    plain, zipped = tmp_path / "notes.txt", tmp_path / "other.dat"
    plain.write_bytes(b"\xef\xbb\xbf" + text)
    zipped.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text))
    results = [open_file(path) for path in (plain, zipped)]
    assert [result.kind for result in results] == ["Kineto trace"] * 2
    assert results[0].digest == results[1].digest
    assert events_of(results[0]) == events_of(results[1])


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b'{"resourceSpans": []}', b"\x1f\x8b\x08garbage", b"PAR1"])
def test_other_files_are_not_taken_for_traces(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank0.pt.trace.json"
    path.write_bytes(content)
    assert kineto.mismatch(path)


def test_a_folder_of_ranks_is_sorted_out(tmp_path: Path) -> None:
    paths = Job(ranks=3).write(tmp_path)
    assert sort_out(tmp_path).files == tuple(paths)
    ranks = [events_of(open_file(path))[0]["rank"] for path in paths]
    assert ranks == [0, 1, 2]


def test_a_trace_without_anything_to_import_says_what_it_holds(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    result = read(tmp_path, document(event))
    assert events_of(result) == []
    assert result.warnings == ("not imported: 1 cpu_op",)


@pytest.mark.parametrize(("style", "late_us"), [("linked", 30_000), ("named", 30_000), ("numbered", 30_000)])
def test_a_late_rank_is_late_by_as_much_and_the_others_wait_for_it(tmp_path: Path, style: Any, late_us: int) -> None:
    job = Job(ranks=3, steps=4, style=style, late=(2, 1, late_us / 1000))
    calls = [named(events_of(open_file(path)), "ncclAllReduce") for path in job.write(tmp_path)]
    for step in range(4):
        ends = {rows[step]["timestamp_ns"] + rows[step]["duration_ns"] for rows in calls}
        assert len(ends) == 1
        behind = calls[2][step]["timestamp_ns"] - calls[0][step]["timestamp_ns"]
        assert abs(behind - (late_us * 1000 if step >= 1 else 0)) <= 500_000
    assert len({row["comm_id"] for rows in calls for row in rows}) == 1
    assert all([row["coll_seq"] for row in rows] == [row["coll_seq"] for row in calls[0]] for rows in calls)
    assert {attrs(row)["cuda.stream"] for row in calls[0]} == {COLLECTIVE_STREAM}
    assert calls[0][1]["timestamp_ns"] // 1_000_000_000 == (BASE_NS + STEP_US * 1000) // 1_000_000_000
