"""Whose dump it is, on which host, of which job, and from when."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ingero_mcp.errors import ImportFileError
from ingero_mcp.importers.imported import Import, Names
from ingero_mcp.importers.registry import open_file
from tests.importers.flight_recorder_job import START_NS, Dump, Job, dump, entry, write_json, write_pickle

DAY_NS = 86_400 * 10**9


def write(folder: Path, name: str, value: Any) -> Path:
    return write_pickle(folder / "job" / name, value)


def facts(read: Import, *columns: str) -> set[Any]:
    found = {tuple(row[name] for name in columns) for batch in read.batches for row in batch.to_pylist()}
    return {values[0] for values in found} if len(columns) == 1 else found


def groups(*ranks: list[int]) -> dict[str, Any]:
    return {str(name): {"name": str(name), "desc": f"g{name}", "ranks": members} for name, members in enumerate(ranks)}


@pytest.mark.parametrize(
    ("name", "rank", "node"),
    [
        ("_dump_2", 2, "unknown"),
        ("2", 2, "unknown"),
        ("rank2.pickle", 2, "unknown"),
        ("nccl_trace_rank_2", 2, "unknown"),
        ("nccl_trace_rank_container-node02_2", 2, "container-node02"),
        ("nccl_trace_rank_node7_2.pkl", 2, "node7"),
        ("comm_lib_trace_rank_ip-10-0-0-1_2", 2, "ip-10-0-0-1"),
        ("nccl_trace_rank_gpu01.example.org_2", 2, "gpu01.example.org"),
        ("my-rank-boxa-2", 2, "boxa"),
        ("rank_h_2.json", 2, "h"),
        ("dump_of_step_2", 2, "unknown"),
        ("nccl_trace_rank_7_2", 2, "unknown"),
        ("nccl_trace_rank_node2", 2, "unknown"),
        ("frank_boxa_2", 2, "unknown"),
        ("nccl_trace_rank_a:b_2", 2, "unknown"),
        ("_dump_0002", 2, "unknown"),
        ("job7_dump_2", 2, "unknown"),
        ("dump.2", 2, "unknown"),
    ],
)
def test_rank_and_host_are_in_the_name(tmp_path: Path, name: str, rank: int, node: str) -> None:
    read = open_file(write(tmp_path, name, dump(entry())))
    assert facts(read, "rank", "node_id") == {(rank, node)}
    assert read.warnings == ()


def test_a_host_in_the_name_is_stronger_than_a_given_node(tmp_path: Path) -> None:
    path = write(tmp_path, "nccl_trace_rank_boxa_2", dump(entry()))
    assert facts(open_file(path, Names(node="given")), "node_id") == {"boxa"}
    path = write(tmp_path, "nccl_trace_rank_2", dump(entry()))
    assert facts(open_file(path, Names(node="given")), "node_id") == {"given"}


def test_a_dump_that_says_rank_and_host_is_believed(tmp_path: Path) -> None:
    path = write(tmp_path, "nccl_trace_rank_boxa_2", dump(entry(), rank=3, host_name="boxb"))
    assert facts(open_file(path), "rank", "node_id") == {(3, "boxb")}


@pytest.mark.parametrize("rank", [None, True, -1, "x", 1 << 40, 2.0])
def test_a_rank_that_is_none_is_not_believed(tmp_path: Path, rank: Any) -> None:
    assert facts(open_file(write(tmp_path, "_dump_2", dump(entry(), rank=rank))), "rank") == {2}


def test_without_a_number_the_rank_is_the_one_in_all_groups(tmp_path: Path) -> None:
    config = groups([0, 1, 2, 3], [2, 3], [1, 3])
    read = open_file(write(tmp_path, "a.bin", dump(entry(), pg_config=config)))
    assert facts(read, "rank") == {3}
    assert read.warnings == ()


def test_a_number_that_is_no_rank_gives_way_to_the_groups(tmp_path: Path) -> None:
    config = groups([0, 1, 2, 3], [2, 3], [1, 3])
    read = open_file(write(tmp_path, "dump_of_2026", dump(entry(), pg_config=config)))
    assert facts(read, "rank") == {3}
    assert read.warnings == (
        "1 dumps are named after a number that is not the rank: the rank is the one in all groups",
    )


@pytest.mark.parametrize("name", ["_dump_2", "_dump_3 (1)"])
def test_groups_know_the_rank_better_than_a_name_does(tmp_path: Path, name: str) -> None:
    config = groups([0, 1, 2, 3], [2, 3], [1, 3])
    read = open_file(write(tmp_path, name, dump(entry(), pg_config=config)))
    assert facts(read, "rank") == {3}
    assert read.warnings == (
        "1 dumps are named after a number that is not the rank: the rank is the one in all groups",
    )


def test_a_number_that_may_be_the_rank_is_believed_and_doubted(tmp_path: Path) -> None:
    config = groups([0, 1, 2, 3], [2, 3])
    read = open_file(write(tmp_path, "_dump_1", dump(entry(), pg_config=config)))
    assert facts(read, "rank") == {1}
    assert read.warnings == (
        "1 dumps are of a rank that is not in all of their groups; is the number in the name the rank?",
    )
    read = open_file(write(tmp_path, "_dump_9", dump(entry())))
    assert facts(read, "rank") == {9}
    assert read.warnings == ("1 dumps are of a rank that is not in the default group",)


@pytest.mark.parametrize("name", ["a.bin", "dump", "_dump_", "_dump_99999999999999999999999"])
def test_without_any_rank_it_is_said_how_to_give_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImportFileError) as caught:
        open_file(write(tmp_path, name, dump(entry())))
    assert str(caught.value) == (
        f"{name}: nothing says whose dump it is: let its name end in its rank, as in _dump_3; nothing was stored"
    )


def test_keys_of_json_are_names_too(tmp_path: Path) -> None:
    dumps = {"0": dump(entry()), "nccl_trace_rank_boxa_1": dump(entry()), "rank 3": dump(entry()), "job": {"x": 1}}
    read = open_file(write_json(tmp_path / "all_7.json", dumps))
    assert facts(read, "rank", "node_id") == {(0, "unknown"), (1, "boxa"), (3, "unknown")}
    assert read.warnings == ("1 values beside the dumps were left out",)
    assert (read.ranks, read.world_size) == (3, 4)


def test_one_dump_in_json_is_named_by_its_file(tmp_path: Path) -> None:
    assert facts(open_file(write_json(tmp_path / "rank_boxa_3.json", dump(entry()))), "rank", "node_id") == {
        (3, "boxa")
    }


def test_two_dumps_of_one_rank_in_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="holds 2 dumps of rank 1; nothing was stored"):
        open_file(write_json(tmp_path / "all.json", {"1": dump(entry()), "01": dump()}))


def test_the_job_is_named_after_the_folder_or_the_file_of_all_ranks(tmp_path: Path) -> None:
    assert facts(open_file(write(tmp_path, "_dump_2", dump(entry()))), "job_id") == {"flight-recorder:job"}
    alone = write_json(tmp_path / "job" / "dump_2.json", dump(entry()))
    assert facts(open_file(alone), "job_id") == {"flight-recorder:job"}
    assert facts(open_file(write_json(tmp_path / "x y.json", {"2": dump()})), "job_id") == {"flight-recorder:x y"}


def test_a_folder_with_a_hostile_name_is_one_printable_line(tmp_path: Path) -> None:
    path = write_pickle(tmp_path / ("a\nb\x1b[31m" + "c" * 230) / "_dump_2", dump(entry()))
    (job,) = facts(open_file(path), "job_id")
    assert job.isprintable()
    assert len(job) <= 220


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (groups([0, 1, 2, 3]), 4),
        ({"5": {"name": "5", "desc": "default_pg", "ranks": [0, 1, 2, 3, 4]}}, 5),
        ({"5": {"name": "5", "desc": "DP", "ranks": [2, 9]}}, 10),
        ({}, 3),
        (..., 3),
    ],
)
def test_the_size_of_the_job_is_that_of_the_default_group(tmp_path: Path, config: Any, size: int) -> None:
    read = open_file(write(tmp_path, "_dump_2", dump(entry(), pg_config=config)))
    assert read.world_size == size
    assert facts(read, "world_size") == {size}


def test_the_digest_is_of_the_content_and_the_rank(tmp_path: Path) -> None:
    value = dump(entry())
    digest = open_file(write(tmp_path, "_dump_2", value)).digest
    assert open_file(write(tmp_path / "other", "nccl_trace_rank_boxa_2", value)).digest == digest
    assert open_file(write(tmp_path, "_dump_3", value)).digest != digest
    assert open_file(write(tmp_path, "_dump_2", dump(entry(op_id=6)))).digest != digest


def test_empty_recorders_of_two_jobs_are_two(tmp_path: Path) -> None:
    digests = {open_file(write(tmp_path / name, "_dump_2", dump())).digest for name in ("a", "b")}
    assert len(digests) == 1
    digests = {open_file(write_pickle(tmp_path / name / "_dump_2", dump())).digest for name in ("a", "b")}
    assert len(digests) == 2


# When a recorder without entries was dumped.


def times(path: Path) -> set[int]:
    return facts(open_file(path), "timestamp_ns")


def touch(path: Path, time_ns: int) -> Path:
    os.utime(path, ns=(time_ns, time_ns))
    return path


def test_an_empty_recorder_is_as_late_as_the_others_in_its_json(tmp_path: Path) -> None:
    path = touch(write_json(tmp_path / "all.json", {"0": dump(entry()), "1": dump()}), START_NS + 9 * DAY_NS)
    assert max(times(path)) == START_NS + 5 * 10**6


def test_an_empty_recorder_is_as_late_as_the_dumps_beside_it(tmp_path: Path) -> None:
    dumps: dict[int, Dump] = Job(silent=(3,), steps=1).dumps()
    paths = [touch(write(tmp_path, f"_dump_{rank}", value), START_NS + 9 * DAY_NS) for rank, value in dumps.items()]
    write(tmp_path, "_dump_7", {"entries": "none", "pg_config": 5})
    (tmp_path / "job" / "core.5").write_bytes(b"\x7fELF" * 100)
    assert dumps[3]["entries"] == []
    assert times(paths[3]) == {max(max(times(path)) for path in paths[:3])}
    assert open_file(paths[3]).warnings == (
        "1 dumps tell no time that can be true: they are put at the latest time of the dumps beside them",
    )


def test_an_empty_recorder_alone_is_as_old_as_its_file(tmp_path: Path) -> None:
    path = touch(write(tmp_path, "_dump_2", dump()), START_NS + DAY_NS)
    assert times(path) == {START_NS + DAY_NS}
    assert open_file(path).warnings == (
        "1 dumps tell no time that can be true: they are put where their file was changed last",
    )
    assert min(times(touch(path, 0))) > 1_500_000_000 * 10**9
