"""find_outlier_nodes: who is unlike the others, by kind of metric, and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ingero_mcp.semconv import HEALTH_SCORE
from ingero_mcp.store import Store
from tests.tools.fleet import HISTORY, NOON, OUTLIERS, SECOND, ask, next_of, put, samples, table_of, text_of

pytestmark = pytest.mark.anyio


def counter(
    name: str, temporality: str, values: dict[str, Sequence[int]], *, monotonic: bool = True, **shared: Any
) -> list[dict[str, Any]]:
    """The points of an OTLP sum, as the decoder stores them."""
    return [
        {
            "node_id": node,
            "metric_name": name,
            "timestamp_ns": NOON + place * SECOND,
            "value_double": float(value),
            "value_int": value,
            "attrs_json": json.dumps(
                {
                    "otlp.metric.kind": "sum",
                    "otlp.metric.temporality": temporality,
                    "otlp.metric.monotonic": monotonic,
                    "otlp.metric.start_time_ns": NOON + place // 2,
                    **shared,
                }
            ),
        }
        for node, own in values.items()
        for place, value in enumerate(own)
    ]


def outliers(rows: list[dict[str, Any]]) -> list[str]:
    return [row["node_id"] for row in rows if row["outlier"]]


@pytest.mark.parametrize("peers", [2, 3, 7])
async def test_one_bad_node_of_three_or_more_is_first_and_called_an_outlier(store: Store, peers: int, era: str) -> None:
    good = {f"n{place}": [0.90 + place / 100, 0.91] for place in range(peers)}
    put(store, samples(good | {"bad": [0.3, 0.31, 0.29]}))
    result = await ask(store, OUTLIERS, era=era)
    rows = table_of(result)
    assert outliers(rows) == ["bad"]
    assert rows[0]["node_id"] == "bad"
    assert (rows[0]["value"], rows[0]["samples"]) == (0.3, 3)
    assert rows[0]["distance"] < -3.5
    assert (result.structured_content["metric"], result.structured_content["direction"]) == (HEALTH_SCORE, "below")
    assert next_of(result)[0] == HISTORY
    assert next_of(result)[1]["node_id"] == "bad"


async def test_a_node_that_is_better_than_the_others_is_no_outlier_in_health(store: Store) -> None:
    put(store, samples({"n1": [0.5], "n2": [0.51], "n3": [0.52], "best": [0.99]}))
    assert outliers(table_of(await ask(store, OUTLIERS))) == []
    assert outliers(table_of(await ask(store, OUTLIERS, {"direction": "above"}))) == ["best"]


async def test_of_two_nodes_neither_is_called_the_odd_one(store: Store, era: str) -> None:
    put(store, samples({"n1": [0.9], "n2": [0.1]}))
    result = await ask(store, OUTLIERS, era=era)
    rows = table_of(result)
    assert outliers(rows) == []
    assert {(row["node_id"], row["difference"], row["distance"]) for row in rows} == {
        ("n1", 0.8, None),
        ("n2", -0.8, None),
    }
    assert "not which of them is the odd one" in text_of(result)


async def test_a_node_alone_has_no_peers(store: Store) -> None:
    put(store, samples({"n1": [0.2]}))
    result = await ask(store, OUTLIERS)
    assert outliers(table_of(result)) == []
    assert "no peers to compare it with" in text_of(result)


async def test_constant_values_are_no_spread_and_no_outlier(store: Store) -> None:
    put(store, samples({f"n{place}": [0.9, 0.9] for place in range(5)}))
    result = await ask(store, OUTLIERS)
    assert outliers(table_of(result)) == []
    assert {row["distance"] for row in table_of(result)} == {None}
    assert "no spread to measure distance in" in text_of(result)


async def test_the_one_that_differs_from_identical_peers_is_an_outlier_without_a_distance(store: Store) -> None:
    put(store, samples({"n1": [0.9], "n2": [0.9], "n3": [0.9], "bad": [0.2]}))
    rows = table_of(await ask(store, OUTLIERS))
    assert outliers(rows) == ["bad"]
    assert rows[0]["node_id"] == "bad"
    assert rows[0]["distance"] is None


async def test_the_peers_of_a_node_are_those_of_its_cluster(store: Store) -> None:
    low = samples({f"a{place}": [0.4 + place / 1000] for place in range(4)}, cluster_id="slow")
    high = samples({f"b{place}": [0.9 + place / 1000] for place in range(3)} | {"bad": [0.5]}, cluster_id="fast")
    put(store, low + high)
    assert outliers(table_of(await ask(store, OUTLIERS))) == ["bad"]
    only = table_of(await ask(store, OUTLIERS, {"cluster_id": "slow"}))
    assert {row["cluster_id"] for row in only} == {"slow"}


async def test_non_finite_samples_are_ignored_and_counted(store: Store, era: str) -> None:
    put(
        store,
        samples(
            {
                "n1": [0.9, float("nan"), float("inf")],
                "n2": [0.91, float("-inf")],
                "n3": [0.92, None],
                "n4": [float("nan")],
            }
        ),
    )
    result = await ask(store, OUTLIERS, era=era)
    rows = {row["node_id"]: row for row in table_of(result)}
    assert {node: row["samples"] for node, row in rows.items()} == {"n1": 1, "n2": 1, "n3": 1}
    assert "4 samples are NaN or infinite and were ignored (n1: 2, n2: 1, n4: 1)" in text_of(result)
    assert "without a finite value, so not ranked: n4" in text_of(result)


async def test_a_threshold_makes_outliers_of_the_nodes_with_samples_past_it(store: Store, era: str) -> None:
    put(store, samples({"n1": [0.9] * 10, "n2": [0.9] * 9 + [0.39], "n3": [0.3] * 10, "n4": [0.4] * 10}))
    result = await ask(store, OUTLIERS, {"metric": "ingero.health.score", "threshold": "0.4"}, era=era)
    rows = table_of(result)
    assert [(row["node_id"], row["share_beyond"]) for row in rows[:2]] == [("n3", 1.0), ("n2", 0.1)]
    assert outliers(rows) == ["n3", "n2"]
    assert result.structured_content["outliers"] == 2
    assert result.structured_content["threshold"] == 0.4


@pytest.mark.parametrize(
    ("arguments", "side"),
    [({"threshold": 5}, "above"), ({"threshold": 0.5}, "below"), ({"threshold": 5, "direction": "below"}, "below")],
)
async def test_auto_takes_the_side_of_the_threshold_where_most_nodes_are_not(
    store: Store, arguments: dict[str, Any], side: str
) -> None:
    put(store, samples({"n1": [1.0], "n2": [1.1], "n3": [9.0]}, metric_name="a.gauge"))
    assert (await ask(store, OUTLIERS, arguments)).structured_content["direction"] == side


async def test_delta_sums_are_added_up(store: Store, era: str) -> None:
    values = {"n1": [3, 5, 2], "n2": [3, 5, 2], "n3": [3, 5, 2], "n4": [40, 50, 45]}
    put(store, counter("tcp.retransmits", "delta", values))
    result = await ask(store, OUTLIERS, {"metric": "tcp.retransmits", "window": "all"}, era=era)
    assert {row["node_id"]: row["value"] for row in table_of(result)} == {"n1": 10, "n2": 10, "n3": 10, "n4": 135}
    assert outliers(table_of(result)) == ["n4"]


async def test_cumulative_counters_are_differenced_and_resets_are_counted(store: Store, era: str) -> None:
    values = {"n1": [3, 8, 10], "n2": [3, 8, 10], "n3": [900, 905, 907], "n4": [3, 8, 2]}
    put(store, counter("cgroup.cpu.throttled_total", "cumulative", values))
    result = await ask(store, OUTLIERS, {"metric": "cgroup.cpu.throttled_total"}, era=era)
    assert {row["node_id"]: row["value"] for row in table_of(result)} == {"n1": 7, "n2": 7, "n3": 7, "n4": 7}
    assert outliers(table_of(result)) == []


async def test_the_series_of_a_node_are_differenced_one_by_one(store: Store) -> None:
    # Interleaved, as two queues of one node are: taken as one series, every point would look like a reset.
    rows = []
    for node in ("n1", "n2", "n3"):
        for queue, values in (("a", [1000, 1001]), ("b", [5, 6])):
            rows += counter("gpu.errors", "cumulative", {node: values}, queue=queue)
    put(store, rows)
    result = await ask(store, OUTLIERS, {"metric": "gpu.errors"})
    assert {row["node_id"]: row["value"] for row in table_of(result)} == {"n1": 2, "n2": 2, "n3": 2}


async def test_large_counters_are_subtracted_exactly(store: Store) -> None:
    base = 2**60
    put(store, counter("cpu.ns", "cumulative", {node: [base, base + 1] for node in ("n1", "n2", "n3")}))
    assert [row["value"] for row in table_of(await ask(store, OUTLIERS))] == [1, 1, 1]


async def test_a_sum_that_may_fall_is_read_like_a_gauge(store: Store) -> None:
    put(
        store,
        counter("queue.length", "cumulative", {"n1": [5, 3, 4], "n2": [4, 4, 4], "n3": [4, 5, 4]}, monotonic=False),
    )
    result = await ask(store, OUTLIERS)
    assert {row["value"] for row in table_of(result)} == {4}
    assert result.structured_content["value_is"] == "median of the samples"


async def test_a_threshold_on_a_counter_is_for_its_total(store: Store) -> None:
    put(store, counter("tcp.retransmits", "delta", {"n1": [3, 5], "n2": [4, 4], "n3": [60, 60]}))
    rows = table_of(await ask(store, OUTLIERS, {"threshold": 100}))
    assert (rows[0]["node_id"], rows[0]["share_beyond"]) == ("n3", 1.0)
    assert outliers(rows) == ["n3"]


async def test_spans_are_compared_by_duration(store: Store) -> None:
    put(
        store,
        [
            {"node_id": f"n{place}", "metric_name": "ncclAllReduce", "duration_ns": 90_000_000 + place * 1000}
            for place in range(6)
        ]
        + [{"node_id": "slow", "metric_name": "ncclAllReduce", "duration_ns": 380_000_000}],
    )
    result = await ask(store, OUTLIERS, {"metric": "ncclAllReduce"})
    assert outliers(table_of(result)) == ["slow"]
    assert result.structured_content["unit"] == "ns"
    assert table_of(result)[0]["value"] == 380_000_000


async def test_events_without_a_value_are_counted_and_silent_nodes_count_as_zero(store: Store) -> None:
    put(
        store,
        samples({f"n{place}": [0.9] for place in range(4)})
        + [{"node_id": "n3", "metric_name": "oom.kill", "event_seq": 100 + place} for place in range(5)],
    )
    rows = table_of(await ask(store, OUTLIERS, {"metric": "oom.kill"}))
    assert {row["node_id"]: row["value"] for row in rows} == {"n0": 0, "n1": 0, "n2": 0, "n3": 5}
    assert outliers(rows) == ["n3"]


async def test_histograms_are_compared_by_the_mean_of_their_points(store: Store) -> None:
    def point(node: str, total: float) -> dict[str, Any]:
        facts = {
            "otlp.metric.kind": "histogram",
            "otlp.histogram": {"count": 4, "sum": total},
            "otlp.metric.unit": "ms",
        }
        return {"node_id": node, "metric_name": "step.duration", "attrs_json": json.dumps(facts)}

    put(store, [point("n1", 40.0), point("n2", 41.0), point("n3", 39.0), point("n4", 400.0)])
    result = await ask(store, OUTLIERS)
    assert {row["node_id"]: row["value"] for row in table_of(result)} == {"n1": 10, "n2": 10.25, "n3": 9.75, "n4": 100}
    assert result.structured_content["unit"] == "ms"
    assert outliers(table_of(result)) == ["n4"]


async def test_events_of_another_kind_under_the_same_name_are_left_out_and_said(store: Store) -> None:
    mixed = {"metric_name": "step", "node_id": "n1", "duration_ns": 7}
    put(store, [*samples({"n1": [1.0], "n2": [1.0], "n3": [1.0]}, metric_name="step"), mixed])
    result = await ask(store, OUTLIERS)
    assert len(table_of(result)) == 3
    assert "1 events of this name are of another kind (span)" in text_of(result)


async def test_without_a_metric_the_only_one_is_taken_and_of_several_the_choice_is_asked_for(store: Store) -> None:
    put(store, samples({"n1": [1.0], "n2": [1.0]}, metric_name="gpu.power.draw_w"))
    assert (await ask(store, OUTLIERS)).structured_content["metric"] == "gpu.power.draw_w"
    put(store, samples({"n1": [1.0]}, metric_name="gpu.memory.used"))
    result = await ask(store, OUTLIERS)
    assert result.is_error
    assert "existing: gpu.power.draw_w, gpu.memory.used" in text_of(result)


async def test_an_unknown_metric_is_an_empty_answer_that_names_the_nearest(store: Store, era: str) -> None:
    put(store, samples({"n1": [0.9], "n2": [0.9]}))
    result = await ask(store, OUTLIERS, {"metric": "ingero.node.healthscore"}, era=era)
    assert table_of(result) == []
    assert f"there is no metric 'ingero.node.healthscore'; nearest: {HEALTH_SCORE}" in text_of(result)


async def test_a_window_without_data_says_where_the_data_is(store: Store, era: str) -> None:
    put(store, samples({"n1": [0.9], "n2": [0.9]}))
    for arguments in ({"window": "2020-01-01/2020-01-02"}, {"window": "2020-01-01/2020-01-02", "metric": HEALTH_SCORE}):
        result = await ask(store, OUTLIERS, arguments, era=era)
        assert table_of(result) == []
        assert "2026-11-30T12:00:00Z" in text_of(result)


async def test_an_empty_database_says_that_it_is_empty(store: Store, era: str) -> None:
    for arguments in ({}, {"metric": HEALTH_SCORE, "threshold": 0.4, "window": "last 5m"}):
        result = await ask(store, OUTLIERS, arguments, era=era)
        assert table_of(result) == []
        assert "the database has no events yet" in text_of(result)


async def test_of_many_nodes_the_most_conspicuous_hundred_are_shown(store: Store) -> None:
    put(store, samples({f"n{place:04}": [0.9 + place / 1e6] for place in range(400)} | {"bad": [0.1]}))
    result = await ask(store, OUTLIERS)
    assert result.structured_content["row_count"] == 100
    assert result.structured_content["truncated"]
    assert table_of(result)[0]["node_id"] == "bad"
