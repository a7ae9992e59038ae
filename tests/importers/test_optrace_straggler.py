"""The question op traces are imported for: does one worker compute longer than its peers, and which?

Asked with one SQL statement over `events`, on generated jobs and, where they are at hand, on two published traces of
real ones: AR (64 GPUs, one worker slowed on purpose) and ST (8 GPUs, a long last stage and nobody to blame).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ingero_mcp.importers.registry import open_file
from tests.importers.optrace_job import Job, with_column, write

# A rank is compared with the median of the other ranks of its stage, which have the same work to do. Named is, in each
# step, the rank furthest above; 10 % is where a difference starts to count.
STRAGGLERS = """
WITH own AS (
    SELECT job_id, step, rank,
           json_extract_string(attrs_json, '$."ingero.stage"') AS stage,
           sum(duration_ns) / 1e9 AS own_s
    FROM events
    WHERE metric_name = 'compute'
      AND json_extract_string(attrs_json, '$."ingero.op_type"') IN ('forward-compute', 'backward-compute')
    GROUP BY job_id, step, rank, stage
), excess AS (
    SELECT own.job_id, own.step, own.rank,
           own.own_s - median(peer.own_s) AS excess_s,
           own.own_s / median(peer.own_s) AS ratio
    FROM own
    JOIN own AS peer
      ON peer.job_id = own.job_id AND peer.step = own.step AND peer.stage = own.stage AND peer.rank <> own.rank
    GROUP BY own.job_id, own.step, own.rank, own.own_s
), named AS (
    SELECT job_id, step, arg_max(rank, excess_s) AS rank, max(excess_s) AS excess_s, arg_max(ratio, excess_s) AS ratio
    FROM excess
    GROUP BY job_id, step
)
SELECT job_id, rank, count(*) AS steps, avg(excess_s) AS mean_excess_s, avg(ratio) AS mean_ratio
FROM named
WHERE ratio >= 1.1
GROUP BY job_id, rank
ORDER BY steps DESC, rank
"""

# Who arrives last at the reduce-scatter is not who is slow: a pipeline moves lateness to other stages.
LAST_AT_REDUCE_SCATTER = """
WITH last AS (
    SELECT step, comm_id, coll_seq, arg_max(rank, timestamp_ns) AS rank,
           max(timestamp_ns) - min(timestamp_ns) AS late_ns
    FROM events WHERE metric_name = 'ncclReduceScatter' GROUP BY step, comm_id, coll_seq
)
SELECT latest, count(*) AS steps FROM (SELECT step, arg_max(rank, late_ns) AS latest FROM last GROUP BY step)
GROUP BY latest ORDER BY steps DESC
"""

# Per operation with a communicator: its ranks, its names, and by how much its rows miss each other.
FIT = """
SELECT count(*) AS members, count(DISTINCT rank) AS ranks, count(DISTINCT (comm_id, coll_seq)) AS numbers,
       list_sort(list(DISTINCT metric_name)) AS names, any_value(nranks) AS nranks,
       max(timestamp_ns) - min(timestamp_ns + duration_ns) AS apart_ns
FROM events WHERE comm_id IS NOT NULL GROUP BY trace_id
"""


def ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    events = pa.Table.from_batches(list(open_file(path).batches))
    with duckdb.connect(":memory:") as connection:
        connection.register("events", events)
        return connection.execute(sql).fetchall()


def test_a_slowed_worker_is_named_in_every_step(tmp_path: Path) -> None:
    job = Job(dp=3, pp=3, tp=2, steps=5, micro_batches=4, slow=(1, 2, 1.5))
    [(job_id, rank, steps, excess_s, ratio)] = ask(write(tmp_path, job.table(), job.meta()), STRAGGLERS)
    assert (job_id, rank, steps) == ("look-alike-run7", job.rank(1, 2), 5)
    assert ratio == pytest.approx(1.5, rel=0.03)
    assert excess_s == pytest.approx(4 * 0.030 * 0.5, rel=0.05)


def test_nobody_is_named_in_a_healthy_job(tmp_path: Path) -> None:
    job = Job(dp=4, pp=2, steps=5, micro_batches=4)
    assert ask(write(tmp_path, job.table(), job.meta()), STRAGGLERS) == []


def test_a_stage_without_peers_names_nobody(tmp_path: Path) -> None:
    job = Job(dp=1, pp=4, steps=3, slow=(0, 1, 3.0))
    assert ask(write(tmp_path, job.table(), job.meta()), STRAGGLERS) == []


@pytest.mark.parametrize("worker", Job(dp=2, pp=3).workers)
def test_the_name_follows_the_slowed_worker(tmp_path: Path, worker: tuple[int, int]) -> None:
    job = Job(dp=2, pp=3, steps=2, slow=(*worker, 1.4))
    [(_, rank, steps, _, _)] = ask(write(tmp_path, job.table(), job.meta()), STRAGGLERS)
    assert (rank, steps) == (job.rank(*worker), 2)


@pytest.fixture
def published() -> Callable[[str], Path]:
    """Finds a published trace; skips the test where it is not at hand."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "data" / "bytedance-straggler"

    def find(name: str) -> Path:
        path = folder / f"trace-{name}.parquet"
        if not path.is_file():
            pytest.skip(f"the published trace {path.name} is not beside this checkout")
        return path

    return find


def changed(trace: Path, folder: Path, table: pa.Table) -> Path:
    """A copy of `trace` with other rows, and with nothing but its layout beside it."""
    shutil.copy(trace.with_name(trace.name.replace("trace-", "meta-")).with_suffix(".yaml"), folder)
    path = folder / trace.name
    pq.write_table(table, path)
    return path


def test_the_slowed_worker_of_a_real_job_is_named_in_every_step(published: Callable[[str], Path]) -> None:
    [(job_id, rank, steps, excess_s, ratio)] = ask(published("AR"), STRAGGLERS)
    assert (job_id, rank, steps) == ("AR-run0", 0, 44)
    assert excess_s == pytest.approx(26.1, abs=0.05)
    assert ratio == pytest.approx(2.36, abs=0.01)


def test_no_worker_is_named_in_a_real_job_with_a_long_last_stage(published: Callable[[str], Path]) -> None:
    assert ask(published("ST"), STRAGGLERS) == []


def test_the_last_to_arrive_in_a_real_job_is_another_rank(published: Callable[[str], Path]) -> None:
    assert ask(published("AR"), LAST_AT_REDUCE_SCATTER) == [(32, 44)]


def test_nothing_beside_trace_and_layout_is_read(published: Callable[[str], Path], tmp_path: Path) -> None:
    trace = published("AR")
    shutil.copy(trace, tmp_path)
    shutil.copy(trace.with_name("meta-AR.yaml"), tmp_path)
    assert open_file(tmp_path / trace.name).digest == open_file(trace).digest
    assert [row[1] for row in ask(tmp_path / trace.name, STRAGGLERS)] == [0]


@pytest.mark.parametrize("moved_to", [1, 2, 3])
def test_the_name_follows_when_replicas_of_a_real_job_change_places(
    published: Callable[[str], Path], tmp_path: Path, moved_to: int
) -> None:
    trace = published("AR")
    table = pq.read_table(trace)
    swap = {0: moved_to, moved_to: 0}
    places = zip(table.column("stage").to_pylist(), table.column("dp_rank").to_pylist(), strict=True)
    moved = [(stage, swap.get(dp_rank, dp_rank)) for stage, dp_rank in places]
    table = with_column(table, "dp_rank", (dp_rank for _, dp_rank in moved))
    table = with_column(table, "rank", ((stage * 4 + dp_rank) * 4 for stage, dp_rank in moved))
    [(_, rank, steps, _, _)] = ask(changed(trace, tmp_path, table), STRAGGLERS)
    assert (rank, steps) == (moved_to * 4, 44)


def test_the_name_follows_when_ranks_of_a_real_job_are_renamed(
    published: Callable[[str], Path], tmp_path: Path
) -> None:
    trace = published("AR")
    table = pq.read_table(trace)
    renamed = with_column(table, "rank", ((rank * 5 + 17) % 64 for rank in table.column("rank").to_pylist()))
    [(_, rank, steps, _, _)] = ask(changed(trace, tmp_path, renamed), STRAGGLERS)
    assert (rank, steps) == (17, 44)


@pytest.mark.parametrize("victim", [1, 3, 6])
def test_a_worker_of_a_real_job_is_named_once_its_work_takes_longer(
    published: Callable[[str], Path], tmp_path: Path, victim: int
) -> None:
    trace = published("ST")
    table = pq.read_table(trace)
    durations = [
        row["duration"] * (1.3 if row["rank"] == victim and row["optype"].endswith("compute") else 1.0)
        for row in table.select(["rank", "optype", "duration"]).to_pylist()
    ]
    table = with_column(table, "duration", durations)
    [(_, rank, steps, _, ratio)] = ask(changed(trace, tmp_path, table), STRAGGLERS)
    assert (rank, steps) == (victim, 32)
    assert ratio == pytest.approx(1.3, abs=0.02)


@pytest.mark.parametrize(("name", "rows"), [("AR", 117_216), ("ST", 6_784)])
def test_every_row_of_a_real_trace_becomes_an_event_of_exactly_its_duration(
    published: Callable[[str], Path], name: str, rows: int
) -> None:
    trace = published(name)
    result = open_file(trace)
    events = pa.Table.from_batches(list(result.batches))
    assert result.rows == len(events) == rows
    exact = [round(seconds * 1e9) for seconds in pq.read_table(trace).column("duration").to_pylist()]
    assert pc.sum(events.column("duration_ns")).as_py() == sum(exact)
    assert sorted(events.column("duration_ns").to_pylist()) == sorted(exact)


@pytest.mark.parametrize("name", ["AR", "ST"])
def test_numbers_of_a_real_trace_put_together_what_happened_together(
    published: Callable[[str], Path], name: str
) -> None:
    trace = published(name)
    assert not [warning for warning in open_file(trace).warnings if "lack" in warning or "overlap" in warning]
    for members, ranks, numbers, names, nranks, apart_ns in ask(trace, FIT):
        assert members == ranks
        assert numbers == 1
        assert apart_ns <= 0
        if names == ["ncclRecv", "ncclSend"]:
            assert members == 2
        else:
            # Of a tensor-parallel group, and only of that, one member is recorded.
            assert len(names) == 1
            assert members == nranks or (names, members) == (["ncclAllReduce"], 1)
