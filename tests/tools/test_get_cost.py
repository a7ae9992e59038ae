"""get_cost: presence times GPUs, a range of dated prices, and `unknown` in place of zero."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingero_mcp.analysis.rates import RATES, chip_of, rates_for
from ingero_mcp.store import Store
from tests.tools.fleet import COST, NOON, SECOND, ask, put, table_of, text_of

HOUR = 3600


def info(node: str, second: int, model: str = "NVIDIA H100 80GB HBM3", gpus: int = 8, provider: str = "lambda") -> Any:
    attributes = {"ingero.gpu_model": model, "ingero.gpu_count": gpus, "ingero.provider": provider}
    return {
        "node_id": node,
        "metric_name": "ingero.node.info",
        "timestamp_ns": NOON + second * SECOND,
        "value_double": 1.0,
        "attrs_json": json.dumps(attributes),
    }


def through(seconds: int, node: str, **how: Any) -> list[Any]:
    """A report each minute from noon for so many seconds."""
    return [info(node, second, **how) for second in range(0, seconds + 1, 60)]


@pytest.mark.anyio
async def test_gpu_hours_are_presence_times_gpus_and_cost_the_providers_rate(store: Store, era: str) -> None:
    put(store, [*through(HOUR, "a"), *through(HOUR // 2, "b", gpus=4)])
    result = await ask(store, COST, era=era)
    a, b = table_of(result)
    assert (a["node_id"], a["gpus"], a["gpu_hours"]) == ("a", 8, 8.0)
    assert (b["node_id"], b["gpus"], b["gpu_hours"]) == ("b", 4, 2.0)
    assert a["usd_low"] == a["usd_high"] == pytest.approx(8 * 2.49)
    assert result.structured_content["gpu_hours"] == 10.0
    assert result.structured_content["usd_high"] == pytest.approx(10 * 2.49)
    assert "as of 2026-05" in text_of(result) and "2.49 USD" in text_of(result)


@pytest.mark.anyio
async def test_hours_add_up_to_the_node(store: Store) -> None:
    put(store, through(2 * HOUR + 1800, "a"))
    rows = table_of(await ask(store, COST, {"by": "hour"}))
    assert [row["hour"] for row in rows] == [f"2026-11-30T{hour}:00:00Z" for hour in (12, 13, 14)]
    assert sum(row["gpu_hours"] for row in rows) == pytest.approx(2.5 * 8, abs=0.01)


@pytest.mark.anyio
async def test_a_long_silence_is_not_counted(store: Store) -> None:
    put(store, [info("a", second) for second in (0, 60, 120, HOUR, HOUR + 60)])
    [row] = table_of(await ask(store, COST))
    assert row["gpu_hours"] == pytest.approx(3 * 60 / HOUR * 8, abs=1e-3)


@pytest.mark.anyio
async def test_an_unknown_gpu_is_unknown_and_not_free(store: Store) -> None:
    put(store, through(HOUR, "a", model="Homebrew X1"))
    result = await ask(store, COST)
    [row] = table_of(result)
    assert (row["gpu_hours"], row["usd_low"], row["usd_high"]) == (8.0, None, None)
    assert "usd_low" not in result.structured_content
    assert result.structured_content["unpriced_gpu_hours"] == 8.0
    assert "rate is unknown" in text_of(result)


@pytest.mark.anyio
async def test_an_own_rate_or_model_is_taken(store: Store) -> None:
    put(store, through(HOUR, "a", model="", provider=""))
    [row] = table_of(await ask(store, COST, {"rate_usd_per_gpu_hour": 1.5}))
    assert row["usd_low"] == row["usd_high"] == 12.0
    [row] = table_of(await ask(store, COST, {"gpu_model": "H100"}))
    assert row["usd_low"] < row["usd_high"]


@pytest.mark.anyio
async def test_gpus_are_counted_by_their_uuid_where_nobody_declares_them(store: Store) -> None:
    put(
        store,
        [
            {"node_id": "a", "gpu_uuid": f"GPU-{second % 3}", "timestamp_ns": NOON + second * 60 * SECOND}
            for second in range(61)
        ],
    )
    [row] = table_of(await ask(store, COST))
    assert (row["gpus"], row["gpu_hours"], row["gpu_model"]) == (3, 3.0, "unknown")


@pytest.mark.anyio
async def test_a_node_without_gpus_has_no_gpu_hours(store: Store) -> None:
    put(store, [{"node_id": "cpu", "timestamp_ns": NOON + second * SECOND} for second in range(10)])
    result = await ask(store, COST)
    [row] = table_of(result)
    assert (row["gpus"], row["gpu_hours"]) == (None, None)
    assert "reported no GPU" in text_of(result)


@pytest.mark.anyio
async def test_by_rank_each_rank_is_one_gpu(store: Store) -> None:
    put(
        store,
        [
            {"node_id": "a", "rank": rank, "timestamp_ns": NOON + minute * 60 * SECOND}
            for rank in (0, 1)
            for minute in range(61)
        ],
    )
    rows = table_of(await ask(store, COST, {"by": "rank", "rate_usd_per_gpu_hour": 2}))
    assert [(row["rank"], row["gpu_hours"], row["usd_high"]) for row in rows] == [(0, 1.0, 2.0), (1, 1.0, 2.0)]


@pytest.mark.anyio
async def test_an_empty_database_says_so(store: Store) -> None:
    result = await ask(store, COST)
    assert table_of(result) == []
    assert "no events" in text_of(result)


@pytest.mark.parametrize(
    ("model", "chip"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("h100-80gb", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4 24GB", "L4"),
        ("Tesla T4, 15360 MiB", ""),
        ("", ""),
    ],
)
def test_a_gpu_is_known_by_either_of_its_names(model: str, chip: str) -> None:
    assert chip_of(model) == chip


def test_prices_carry_their_date_and_source() -> None:
    assert all(rate.as_of and rate.source and rate.usd_per_gpu_hour > 0 for rate in RATES)
    assert {rate.provider for rate in rates_for("H100", "ec2")} == {"ec2"}
    assert {rate.provider for rate in rates_for("H100", "nobody")} == {""}
    assert rates_for("Tesla T4", "ec2") == ()
