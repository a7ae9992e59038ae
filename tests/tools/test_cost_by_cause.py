"""get_cost by cause: what each finding of a job cost, once, and that nothing is made up where it is not known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingero_mcp.cli.opened import opened
from ingero_mcp.importers.imported import Names
from ingero_mcp.store import Store
from ingero_mcp.tools import get_cost
from ingero_mcp.tools.answer import finish
from ingero_mcp.tools.call import Call
from tests.test_explain_real import trace
from tests.tools.explained import MS, NOON, Row, Training, follow, put
from tests.tools.fleet import COST, ask, table_of, text_of

pytestmark = pytest.mark.anyio
H100 = "NVIDIA H100 80GB HBM3"


def info(node: str, model: str, provider: str = "lambda") -> Row:
    said = {"ingero.gpu_model": model, "ingero.gpu_count": 8, "ingero.provider": provider}
    return {
        "cluster_id": "c1",
        "node_id": node,
        "event_seq": 0,
        "timestamp_ns": NOON,
        "metric_name": "ingero.node.info",
        "source": "health",
        "value_double": 1.0,
        "attrs_json": json.dumps(said),
    }


def delayed(late: dict[int, tuple[int, int]], *, ms: float = 60, steps: int = 90) -> list[Row]:
    """A job in which each rank is late from one step to another, and whatever comes after it is later by as much."""
    found = []
    for row in Training(steps=steps).rows():
        step = row["step"]
        before = sum(first <= one < last for one in range(step) for first, last in late.values())
        mine = [first <= step < last for rank, (first, last) in late.items() if rank == row["rank"]]
        waits = any(first <= step < last for first, last in late.values())
        enters = row["timestamp_ns"] + round((before + sum(mine)) * ms * MS)
        took = row["duration_ns"] + round((waits - sum(mine)) * ms * MS)
        found.append(row | {"timestamp_ns": enters, "duration_ns": took})
    return found


async def by_cause(store: Store, **arguments: Any) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    result = await ask(store, COST, {"by": "cause", **arguments})
    return table_of(result), result.structured_content, text_of(result)


async def test_what_a_straggler_cost_is_the_longer_time_of_all_gpus(store: Store, era: str) -> None:
    put(store, delayed({2: (60, 90)}))
    put(store, [info(f"node-{rank}", H100) for rank in range(4)])
    result = await ask(store, COST, {"by": "cause"}, era=era)
    (row,) = table_of(result)
    assert (row["verdict"], row["job_id"], row["gpus"]) == ("straggler", "job", 4)
    assert row["culprits"] == "rank 2 on node-2"
    # 30 steps are longer by 60 ms, and all four ranks wait for it: once each, however many wait.
    assert row["gpu_hours_lost"] == pytest.approx(30 * 0.060 * 4 / 3600, rel=0.1)
    assert row["usd_low"] == row["usd_high"] == pytest.approx(row["gpu_hours_lost"] * 2.49, rel=1e-3)
    assert not row["is_upper_bound"] and "against others of this window" in row["how"]
    assert result.structured_content["gpu_hours"] == pytest.approx(row["gpu_hours_lost"], abs=1e-4)
    assert "list prices are an upper bound" in text_of(result)


async def test_a_healthy_job_lost_nothing_and_that_is_said(store: Store) -> None:
    put(store, Training().rows())
    (row,), facts, _ = await by_cause(store, gpu_model="H100")
    assert (row["cause"], row["verdict"], row["gpu_hours_lost"], row["usd_high"]) == ("none", "healthy", 0, 0)
    assert row["how"].startswith("healthy")
    assert facts["gpu_hours"] == 0


async def test_what_cannot_be_judged_is_not_said_to_be_free(store: Store) -> None:
    put(store, Training(steps=2).rows())
    (row,), _, text = await by_cause(store, rate_usd_per_gpu_hour=2.0)
    assert (row["verdict"], row["gpu_hours_lost"], row["usd_high"]) == ("undecidable", None, None)
    assert "it is not known, which is not 0" in text


async def test_a_hang_costs_from_its_onset_to_the_last_that_was_heard_of_the_job(store: Store) -> None:
    put(store, Training(stops=(1, 20)).rows())
    place = {"cluster_id": "c1", "node_id": "node-0", "event_seq": 900, "metric_name": "x", "source": "host"}
    last_ns = NOON + 604_000 * MS
    put(store, [place | {"job_id": "job", "timestamp_ns": last_ns}])
    # Another job goes on for long after.
    put(store, [place | {"job_id": "next", "node_id": "n9", "timestamp_ns": NOON + 10**9 * MS}])
    (row,), _, _ = await by_cause(store, rate_usd_per_gpu_hour=2.0)
    assert (row["verdict"], row["culprits"]) == ("hang", "rank 1 on node-1")
    assert row["gpu_hours_lost"] == pytest.approx(600 * 4 / 3600, rel=0.01)
    assert row["usd_high"] == pytest.approx(2 * row["gpu_hours_lost"], rel=1e-3)


async def test_lateness_that_made_no_step_longer_cost_next_to_nothing(store: Store) -> None:
    put(store, Training(late_ms={2: 60}, steps=60, since=30).rows())
    (row,), _, _ = await by_cause(store)
    assert (row["verdict"], row["culprits"]) == ("straggler", "rank 2 on node-2")
    assert row["gpu_hours_lost"] < 0.1 * 30 * 0.060 * 4 / 3600


async def test_two_findings_of_a_job_add_up_and_count_no_step_twice(store: Store) -> None:
    put(store, delayed({2: (40, 60), 1: (60, 75)}))
    found, facts, text = await by_cause(store, gpu_model="H100")
    assert {row["culprits"] for row in found} == {"rank 2 on node-2", "rank 1 on node-1"}
    assert all(row["gpu_hours_lost"] > 0 for row in found)
    assert facts["gpu_hours"] == pytest.approx(35 * 0.060 * 4 / 3600, rel=0.1)
    assert sum(row["gpu_hours_lost"] for row in found) == pytest.approx(facts["gpu_hours"], abs=1e-3)
    assert "a step is counted with the first of its job's rows" in text


async def test_the_job_that_lost_most_comes_first_and_each_job_has_its_own_gpus(store: Store) -> None:
    put(store, Training(job="mild", node="a", comm="aa", late_ms={0: 30}, since=20).rows())
    put(store, Training(job="bad", node="b", comm="bb", late_ms={1: 90}, since=20).rows())
    put(store, [info("a-0", "NVIDIA A100-SXM4-80GB"), info("b-1", H100)])
    rows, _, _ = await by_cause(store)
    assert [(row["job_id"], row["gpu_model"], row["rate_low"]) for row in rows] == [
        ("bad", H100, 2.49),
        ("mild", "NVIDIA A100-SXM4-80GB", 1.29),
    ]


async def test_a_price_that_is_not_known_is_not_zero(store: Store) -> None:
    put(store, delayed({2: (60, 90)}))
    (row,), facts, text = await by_cause(store)
    assert (row["usd_low"], row["usd_high"], row["gpu_model"]) == (None, None, "unknown")
    assert facts["unpriced_gpu_hours"] == facts["gpu_hours"] > 0
    assert "where usd is NULL the rate is unknown" in text
    put(store, [info("node-0", H100), info("node-1", "Homebrew X1")])
    (row,), _, _ = await by_cause(store)
    assert row["usd_low"] is None, "a job on two models has no price if one of them has none"


async def test_more_jobs_than_are_looked_at_are_said_to_be_there(store: Store) -> None:
    for number in range(10):
        put(store, Training(job=f"job-{number}", comm=f"{number:016x}", steps=2).rows())
    _, _, text = await by_cause(store)
    assert "only the 8 jobs with most events" in text


@pytest.mark.parametrize("arguments", [{}, {"cluster_id": "c2"}, {"window": "2020-01-01/2020-01-02"}])
async def test_where_there_is_no_job_it_is_said_what_else_to_ask(store: Store, arguments: dict[str, Any]) -> None:
    put(store, [info("node-0", H100)])
    rows, _, text = await by_cause(store, **arguments)
    assert rows == []
    assert "no job of this window has collectives or computing to judge by; by node says what was occupied" in text


async def test_an_empty_database_says_so(store: Store) -> None:
    rows, _, text = await by_cause(store)
    assert rows == [] and "no events yet" in text


def test_the_price_of_a_hang_is_in_explain_stall_too(store: Store) -> None:
    put(store, Training(stops=(1, 20)).rows())
    put(store, [Training().row(0, 900, 604_000, 1.0)])
    said = follow(store, 'fleet.cluster.explain_stall {"job_id": "job"}').structured
    assert said["verdict"] == "hang"
    assert said["cost"]["gpu_hours"] == pytest.approx(600 * 4 / 3600, rel=0.01)


@pytest.mark.parametrize(("name", "hours", "cause"), [("AR", 17.88, "gpu_throttle"), ("ST", 0.0234, "stage_imbalance")])
def test_published_jobs_lost_what_their_authors_worked_out(name: str, hours: float, cause: str) -> None:
    with opened(trace(name), Names("unknown", "unknown"), []) as imported:
        given = get_cost.GetCost(by="cause", gpu_model="H100")
        said = finish(get_cost.get_cost(Call(imported, None), given), get_cost.CostTable).structured
    assert said["gpu_hours"] == pytest.approx(hours, rel=0.1)
    assert said["usd_low"] == pytest.approx(said["gpu_hours"] * 1.99, rel=0.01)
    first = dict(zip(said["columns"], said["rows"][0], strict=True))
    assert first["cause"] == cause
