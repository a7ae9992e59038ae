"""explain on published recordings whose cause is known, and on copies of them in which somebody else is at fault.

The data lies beside this checkout, or the tests are skipped.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingero_mcp.cli.main import main
from ingero_mcp.cli.opened import opened
from ingero_mcp.importers.imported import Names
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from tests.conftest import DATA
from tests.importers.optrace_job import with_column
from tests.tools.explained import ask

COMPUTE = ("forward-compute", "backward-compute")


def find(*parts: str) -> Path:
    """The published recording; skips the test where it is not at hand."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout")
    return path


def explained(path: Path) -> dict[str, Any]:
    """The answer about a file or folder; its form is checked."""
    with opened(path, Names("unknown", "unknown"), []) as store:
        return ask(store)


def ranks(said: Mapping[str, Any]) -> list[int]:
    return [culprit["rank"] for culprit in said["culprits"]]


# Op traces


def trace(name: str) -> Path:
    return find("bytedance-straggler", f"trace-{name}.parquet")


def changed(name: str, folder: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A copy of a trace with other rows, and its layout beside it."""
    path = trace(name)
    shutil.copy(path.with_name(f"meta-{name}.yaml"), folder)
    pq.write_table(change(pq.read_table(path)), folder / path.name)
    return folder / path.name


def renamed(table: pa.Table, dp: int, tp: int, dp_rank: Mapping[int, int]) -> pa.Table:
    """The same job, other data parallel ranks having done what these did."""
    dps = [dp_rank.get(one, one) for one in numbers(table, "dp_rank").tolist()]
    stages = numbers(table, "stage").tolist()
    ranks = [(stage * dp + one) * tp for one, stage in zip(dps, stages, strict=True)]
    return with_column(with_column(table, "dp_rank", dps), "rank", ranks)


def numbers(table: pa.Table, name: str) -> Any:
    return np.asarray(table.column(name).to_numpy())


def computes(table: pa.Table) -> Any:
    return np.isin(np.array(table.column("optype").to_pylist()), COMPUTE)


def slower(table: pa.Table, rank: int, factor: float) -> pa.Table:
    """The same, the rank computing longer: what comes after on any rank of the step keeps its time."""
    mine = computes(table) & (numbers(table, "rank") == rank)
    return with_column(table, "duration", np.where(mine, factor, 1.0) * numbers(table, "duration"))


def swapped(table: pa.Table, one: int, other: int) -> pa.Table:
    """The same, each of two stages computing as long as the other did."""
    duration = numbers(table, "duration").copy()
    keys = [numbers(table, name) for name in ("mb_id", "dp_rank", "step")]
    order = np.lexsort((*keys, np.array(table.column("optype").to_pylist())))
    here, there = (order[(computes(table) & (numbers(table, "stage") == stage))[order]] for stage in (one, other))
    duration[here], duration[there] = duration[there], duration[here]
    return with_column(table, "duration", duration)


def test_the_slowed_worker_is_named_alone_in_every_step() -> None:
    said = explained(trace("AR"))
    assert (said["verdict"], ranks(said)) == ("straggler", [0])
    assert said["culprits"][0]["lateness_ms"] == pytest.approx(26_100, rel=0.02)
    assert (said["affected_steps"]["count"], said["affected_steps"]["total"]) == (44, 44)
    assert said["timing_source"] == "kernel_gpu"
    assert not said["culprit_groups"]
    # 64 GPUs, 44 steps of 46.3 s in place of 23.5 s, as the authors of the trace worked out.
    assert said["cost"]["gpu_hours"] == pytest.approx(17.88, rel=0.1)


@pytest.mark.parametrize("other", [1, 3])
def test_the_name_moves_with_the_slowed_worker(tmp_path: Path, other: int) -> None:
    path = changed("AR", tmp_path, lambda table: renamed(table, 4, 4, {0: other, other: 0}))
    said = explained(path)
    assert (said["verdict"], ranks(said)) == ("straggler", [other * 4])


def test_the_job_without_its_slowed_worker_has_no_straggler(tmp_path: Path) -> None:
    """Its work is that of a peer of the same stage, divided by how much longer it took."""
    said = explained(changed("AR", tmp_path, lambda table: slower(table, 0, 1 / 2.36)))
    assert 0 not in ranks(said)


def test_a_long_stage_is_an_imbalance_and_nobody_is_to_blame() -> None:
    said = explained(trace("ST"))
    assert (said["verdict"], said["cause"], ranks(said)) == ("imbalance", "stage_imbalance", [])
    (group,) = said["culprit_groups"]
    assert (group["kind"], group["ranks"]) == ("stage", [6, 7])
    assert "3" in group["id"]
    assert said["cost"]["gpu_hours"] == pytest.approx(0.0234, rel=0.1)


@pytest.mark.parametrize(("factor", "least", "most"), [(1.25, 21.0, 30.0), (1.5, 25.0, 42.0)])
def test_what_is_lost_grows_with_the_slowed_worker(tmp_path: Path, factor: float, least: float, most: float) -> None:
    said = explained(changed("AR", tmp_path, lambda table: slower(table, 0, factor)))
    assert ranks(said) == [0]
    assert least < said["cost"]["gpu_hours"] < most


def test_the_stage_moves_with_the_work(tmp_path: Path) -> None:
    said = explained(changed("ST", tmp_path, lambda table: swapped(table, 3, 1)))
    assert (said["verdict"], said["cause"], ranks(said)) == ("imbalance", "stage_imbalance", [])
    assert said["culprit_groups"][0]["ranks"] == [2, 3]


def test_a_worker_slowed_in_the_job_with_a_long_stage_is_named(tmp_path: Path) -> None:
    said = explained(changed("ST", tmp_path, lambda table: slower(table, 2, 3.0)))
    blamed = set(ranks(said)) | {rank for other in said["other_findings"] for rank in other["culprits"]}
    assert blamed == {2}


# Dumps of recorders

FAULTY = {"gpu_error_1st": ([12, 14], "gpu_fault"), "lock_gil_1st": ([9, 14], "host_hang")}


def dumps(case: str) -> dict[str, Any]:
    return json.loads(find("flight-recorder", f"{case}.json").read_text())  # type: ignore[no-any-return]


def written(folder: Path, content: Mapping[str, Any]) -> Path:
    path = folder / "case.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("form", ["", ".json"])
@pytest.mark.parametrize("case", FAULTY)
def test_every_faulty_rank_is_named_and_no_other(case: str, form: str) -> None:
    said = explained(find("flight-recorder", f"{case}{form}"))
    faulty, cause = FAULTY[case]
    assert (said["verdict"], said["cause"], ranks(said)) == ("hang", cause, faulty)
    assert said["waiting_ranks"] == sorted(set(range(16)) - set(faulty))
    assert not said["other_findings"]


@pytest.mark.parametrize("case", FAULTY)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_names_move_with_the_ranks(tmp_path: Path, case: str, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(16).tolist()
    content = {}
    for name, one in dumps(case).items():
        groups = {
            key: group | {"ranks": str([order[rank] for rank in json.loads(group["ranks"])])}
            for key, group in one["pg_config"].items()
        }
        content[str(order[int(name)])] = one | {"pg_config": groups}
    said = explained(written(tmp_path, content))
    faulty, cause = FAULTY[case]
    assert (said["cause"], ranks(said)) == (cause, sorted(order[rank] for rank in faulty))


@pytest.mark.parametrize("case", FAULTY)
def test_dumps_of_ranks_that_wait_are_not_needed_to_name_those_at_fault(tmp_path: Path, case: str) -> None:
    faulty, cause = FAULTY[case]
    content = {name: one for name, one in dumps(case).items() if name not in ("0", "3")}
    said = explained(written(tmp_path, content))
    assert (said["cause"], ranks(said)) == (cause, faulty)
    assert "14 of 16 ranks were seen" in said["gaps"]
    assert said["confidence"] <= 0.7


def test_without_the_dump_of_one_that_stopped_the_other_is_named_and_the_absent_one_is_asked_for(
    tmp_path: Path,
) -> None:
    said = explained(written(tmp_path, {name: one for name, one in dumps("gpu_error_1st").items() if name != "12"}))
    assert ranks(said) == [14]
    assert said["enable"] == ["the dumps of rank 12"]


def test_one_dump_of_sixteen_decides_nothing(tmp_path: Path) -> None:
    said = explained(written(tmp_path, {"5": dumps("gpu_error_1st")["5"]}))
    assert (said["verdict"], ranks(said)) == ("undecidable", [])


# Scrapes, traces of the profiler


def test_a_scrape_of_hanging_ranks_and_one_of_healthy_ones() -> None:
    hang = explained(find("xpu-timer", "hang__xpu_timer_metric_all"))
    assert (hang["verdict"], ranks(hang)) == ("hang", list(range(8)))
    healthy = explained(find("xpu-timer", "normal__xpu_timer_metric_0"))
    assert (healthy["verdict"], ranks(healthy)) == ("healthy", [])


def test_a_scrape_in_which_one_rank_hangs(tmp_path: Path) -> None:
    text = find("xpu-timer", "hang__xpu_timer_metric_all").read_text()
    lines = [
        f"{line.rpartition(' ')[0]} 0"
        if "COMMON_HANG" in line and not line.startswith("#") and 'rank="3"' not in line
        else line
        for line in text.split("\n")
    ]
    (tmp_path / "scrape").write_text("\n".join(lines))
    assert ranks(explained(tmp_path / "scrape")) == [3]


def test_collectives_of_two_ranks_are_joined_and_nobody_is_blamed(tmp_path: Path) -> None:
    said = explained(find("kineto"))
    assert said["verdict"] in ("healthy", "undecidable")
    assert ranks(said) == []
    database = tmp_path / "x.duckdb"
    assert main(["import", str(find("kineto")), "-d", str(database)]) == 0
    sql = "SELECT count(*) FROM collectives WHERE rank = 0 AND ranks_seen = 2"
    with open_store(database, read_only=True) as store:
        ((joined,),) = store.query(check(sql), limit=1).rows
    assert isinstance(joined, int) and joined > 0
