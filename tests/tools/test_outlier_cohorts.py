"""find_outlier_nodes in a mixed cluster: who is compared with whom, and which GPU, rank or device is odd."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingero_mcp.semconv import HEALTH_SCORE
from ingero_mcp.store import Store
from tests.tools.fleet import OUTLIERS, ask, put, samples, table_of, text_of
from tests.tools.test_find_outlier_nodes import outliers

pytestmark = pytest.mark.anyio

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def saying(rows: list[dict[str, Any]], **attributes: Any) -> list[dict[str, Any]]:
    """The same with attributes; an underscore stands for a dot."""
    said = {key.replace("__", "."): value for key, value in attributes.items()}
    return [{**row, "attrs_json": json.dumps(said | json.loads(row.get("attrs_json", "{}")))} for row in rows]


def info(model: str, *nodes: str) -> list[dict[str, Any]]:
    made = [{"node_id": node, "metric_name": "ingero.node.info", "value_double": 1.0} for node in nodes]
    return saying(made, ingero__gpu_model=model)


def gpus(values: dict[str, list[float]], metric: str = "gpu.clock.sm_mhz") -> list[dict[str, Any]]:
    """Two samples of each GPU of each node."""
    return [
        {"node_id": node, "gpu_uuid": f"GPU-{node}-{place}", "metric_name": metric, "value_double": value}
        for node, own in values.items()
        for place, value in enumerate(own)
        for _ in range(2)
    ]


async def test_nodes_are_compared_with_those_of_the_same_gpu(store: Store, era: str) -> None:
    fast = {f"h{place}": [1980.0 + place] for place in range(6)} | {"bad": [1400.0]}
    slow = {f"a{place}": [1410.0 + place] for place in range(6)}
    put(store, [*samples(fast | slow, metric_name="gpu.clock.sm_mhz"), *info(H100, *fast), *info(A100, *slow)])
    result = await ask(store, OUTLIERS, {"metric": "gpu.clock.sm_mhz"}, era=era)
    rows = table_of(result)
    assert outliers(rows) == ["bad"]
    assert {row["cohort"] for row in rows if row["node_id"] in slow} == {"A100-80"}
    assert rows[0]["cohort"] == "H100" and rows[0]["peer_median"] == 1982
    assert "compared within 2 cohorts: H100 (7), A100-80 (6)" in text_of(result)
    together = table_of(await ask(store, OUTLIERS, {"metric": "gpu.clock.sm_mhz", "peers": "cluster"}))
    assert outliers(together) == [] and {row["cohort"] for row in together} == {""}


async def test_where_all_gpus_are_of_one_model_nobody_is_set_apart(store: Store) -> None:
    nodes = {f"n{place}": [0.9 + place / 1000] for place in range(6)} | {"bad": [0.3]}
    # The same chip by both of its names, and one node that does not say.
    put(store, [*samples(nodes), *info(H100, "n0", "n1", "n2"), *info("h100-80gb", "n3", "bad")])
    rows = table_of(await ask(store, OUTLIERS, {"metric": HEALTH_SCORE}))
    assert {row["cohort"] for row in rows} == {""}
    assert outliers(rows) == ["bad"]


async def test_a_node_alone_in_its_cohort_is_not_judged_and_that_is_said(store: Store) -> None:
    nodes = {f"n{place}": [0.9 + place / 1000] for place in range(6)}
    put(store, [*samples(nodes | {"odd": [0.3]}), *info(H100, *nodes), *info(A100, "odd")])
    result = await ask(store, OUTLIERS, {"metric": HEALTH_SCORE})
    assert outliers(table_of(result)) == []
    assert "cluster c1 (A100-80): only one node has values, so there are no peers" in text_of(result)


async def test_workloads_are_compared_with_their_own(store: Store) -> None:
    training = samples({f"t{place}": [0.9 + place / 1000] for place in range(6)})
    serving = samples({f"s{place}": [0.4 + place / 1000] for place in range(6)} | {"bad": [0.1]})
    put(
        store,
        saying(training, ingero__workload_type="training") + saying(serving, ingero__workload_type="inference"),
    )
    rows = table_of(await ask(store, OUTLIERS))
    assert outliers(rows) == ["bad"]
    assert rows[0]["cohort"] == "inference"


async def test_a_cgroup_path_that_nodes_share_separates_and_one_of_a_single_pod_does_not(store: Store) -> None:
    def pushed(prefix: str, score: float, **attributes: Any) -> list[dict[str, Any]]:
        return saying(samples({f"{prefix}{place}": [score + place / 1000] for place in range(6)}), **attributes)

    shared = pushed("a", 0.9, ingero__cgroup_path_hash="aaaa") + pushed("b", 0.5, ingero__cgroup_path_hash="bbbb")
    put(store, shared)
    rows = table_of(await ask(store, OUTLIERS))
    assert outliers(rows) == []
    assert {row["cohort"] for row in rows} == {"cgroup aaaa", "cgroup bbbb"}


async def test_pods_with_a_cgroup_path_each_are_peers(store: Store) -> None:
    nodes = {f"n{place}": [0.9 + place / 1000] for place in range(6)} | {"bad": [0.3]}
    put(
        store,
        [row for node, own in nodes.items() for row in saying(samples({node: own}), ingero__cgroup_path_hash=node)],
    )
    rows = table_of(await ask(store, OUTLIERS))
    assert outliers(rows) == ["bad"]
    assert {row["cohort"] for row in rows} == {""}


async def test_one_slow_gpu_of_eight_does_not_hide_behind_the_others_of_its_node(store: Store, era: str) -> None:
    clocks = {node: [1980.0 + place for place in range(8)] for node in ("n1", "n2", "n3")}
    clocks["n2"][5] = 1200.0
    put(store, gpus(clocks))
    result = await ask(store, OUTLIERS, era=era)
    rows = table_of(result)
    assert [row["node_id"] for row in rows] == ["n2", *(row["node_id"] for row in rows[1:])] and len(rows) == 3
    assert outliers(rows) == ["n2"]
    assert (rows[0]["series"], rows[0]["odd_series"], rows[0]["value"]) == ("GPU GPU-n2-5", "1 of 8", 1200)
    assert rows[0]["samples"] == 2


async def test_within_one_node_the_odd_gpu_is_found(store: Store) -> None:
    put(store, gpus({"alone": [1980.0, 1981, 1982, 1983, 1984, 1985, 1986, 990]}))
    rows = table_of(await ask(store, OUTLIERS))
    assert (rows[0]["outlier"], rows[0]["series"]) == (True, "GPU GPU-alone-7")


async def test_a_node_all_of_whose_gpus_are_slow_has_all_of_them_counted(store: Store) -> None:
    clocks = {f"n{node}": [1980.0 + node + place for place in range(4)] for node in range(5)}
    put(store, gpus(clocks | {"slow": [1200.0, 1201, 1202, 1203]}))
    rows = table_of(await ask(store, OUTLIERS))
    assert (rows[0]["node_id"], rows[0]["odd_series"]) == ("slow", "4 of 4")
    assert outliers(rows) == ["slow"]


async def test_gpus_of_prometheus_exporters_are_told_by_their_labels(store: Store) -> None:
    rows = [
        row
        for node in ("n1", "n2", "n3")
        for gpu in range(4)
        for row in saying(
            samples({node: [95.0 if (node, gpu) == ("n3", 2) else 60.0 + gpu]}, metric_name="DCGM_FI_DEV_GPU_TEMP"),
            UUID=f"GPU-{node}-{gpu}",
            gpu=str(gpu),
            device=f"nvidia{gpu}",
            modelName=H100,
        )
    ]
    put(store, rows)
    found = table_of(await ask(store, OUTLIERS))
    assert outliers(found) == ["n3"]
    assert found[0]["series"] == "GPU GPU-n3-2"


async def test_a_rank_that_is_unlike_the_others_is_named_with_its_node(store: Store) -> None:
    spans = [
        {
            "node_id": f"n{rank // 4}",
            "rank": rank,
            "metric_name": "ncclAllReduce",
            "source": "nccl",
            "duration_ns": took,
        }
        for rank in range(8)
        for took in ((90_000_000, 91_000_000) if rank != 5 else (380_000_000, 390_000_000))
    ]
    put(store, spans)
    rows = table_of(await ask(store, OUTLIERS, {"metric": "ncclAllReduce"}))
    assert outliers(rows) == ["n1"]
    assert (rows[0]["series"], rows[0]["odd_series"]) == ("rank 5", "1 of 4")


async def test_the_rank_of_an_agent_is_no_series_of_its_nodes_health(store: Store) -> None:
    moved = [{**row, "rank": place} for place, row in enumerate(samples({"n1": [0.9] * 4, "n2": [0.9] * 4}))]
    put(store, moved)
    rows = table_of(await ask(store, OUTLIERS))
    assert [(row["node_id"], row["samples"]) for row in rows] == [("n1", 4), ("n2", 4)]
    assert "series" not in rows[0]


async def test_what_a_metric_says_of_different_things_is_compared_like_with_like(store: Store) -> None:
    # A p99 is always far from a median; on one node it is far from the p99 of the others.
    rows = []
    for node in range(6):
        for percentile, value in (("p50", 10.0 + node / 10), ("p99", 5000.0 if node == 4 else 500.0 + node)):
            took = samples({f"n{node}": [value]}, metric_name="gpu.cuda.operation.duration")
            rows += saying(took, operation="cudaMalloc", percentile=percentile)
    put(store, rows)
    found = table_of(await ask(store, OUTLIERS))
    assert outliers(found) == ["n4"]
    assert found[0]["series"] == "operation=cudaMalloc, percentile=p99"
    assert found[0]["odd_series"] == "1 of 2"


async def test_an_interface_is_compared_with_that_of_the_same_name(store: Store) -> None:
    rows = []
    for node in range(6):
        for device, rate in (("ib0", 400.0 if node != 2 else 25.0), ("eth0", 1.0 + node / 100)):
            rows += saying(samples({f"n{node}": [rate]}, metric_name="hw.network.rate"), device=device)
    put(store, rows)
    found = table_of(await ask(store, OUTLIERS))
    assert outliers(found) == ["n2"]
    assert found[0]["series"] == "device=ib0"


async def test_stages_of_a_pipeline_are_compared_with_their_own(store: Store) -> None:
    rows = []
    for rank in range(12):
        took = (100 if rank < 6 else 300) * 1_000_000 * (2 if rank == 9 else 1)
        span = {
            "node_id": f"n{rank}",
            "rank": rank,
            "metric_name": "compute",
            "source": "gpu",
            "duration_ns": took + rank,
        }
        rows += saying([span], ingero__stage=rank // 6, ingero__op_type="forward")
    put(store, rows)
    found = table_of(await ask(store, OUTLIERS, {"metric": "compute"}))
    assert outliers(found) == ["n9"]
    assert found[0]["cohort"] == "stage 1"


async def test_counters_are_differenced_per_gpu(store: Store) -> None:
    facts = {"otlp.metric.kind": "sum", "otlp.metric.temporality": "cumulative", "otlp.metric.monotonic": True}
    rows = [
        {
            "node_id": f"n{node}",
            "gpu_uuid": f"GPU-{node}-{gpu}",
            "metric_name": "gpu.throttle.event_total",
            "value_double": float(value),
            "value_int": value,
            "attrs_json": json.dumps(facts),
        }
        for node in range(3)
        for gpu in range(2)
        for value in ((7000, 7001, 7002) if (node, gpu) != (1, 1) else (5, 60, 12))
    ]
    put(store, rows)
    found = table_of(await ask(store, OUTLIERS))
    assert outliers(found) == ["n1"]
    assert (found[0]["series"], found[0]["value"], found[0]["peer_median"]) == ("GPU GPU-1-1", 55 + 12, 2)


async def test_a_metric_of_two_gpu_models_within_a_node_keeps_them_apart(store: Store) -> None:
    rows = []
    for gpu in range(8):
        model, clock = (H100, 1980.0) if gpu < 4 else (A100, 1410.0)
        rows += saying(gpus({"n1": [clock + gpu]}), modelName=model, UUID=f"GPU-{gpu}")
    for place, row in enumerate(rows):
        row["gpu_uuid"] = f"GPU-{place // 2}"
    put(store, rows)
    found = table_of(await ask(store, OUTLIERS))
    assert outliers(found) == []
    assert {row["cohort"] for row in found} == {"H100", "A100-80"}


async def test_method_ingero_calls_those_outliers_whom_their_agents_would(store: Store, era: str) -> None:
    nodes = {f"n{place}": [0.90 + place / 100] * 3 for place in range(5)} | {"bad": [0.84, 0.84, 0.10]}
    put(store, samples(nodes))
    result = await ask(store, OUTLIERS, {"method": "ingero", "metric": "ingero.health.score"}, era=era)
    rows = table_of(result)
    # Of 0.84, 0.90 ... 0.94 the median is 0.915 and the MAD 0.015.
    limit = pytest.approx(0.915 - 2 * 0.015 * 1.4826)
    assert outliers(rows) == ["bad"]
    assert [row["threshold"] for row in rows] == [limit] * 6
    assert result.structured_content["threshold"] == limit
    wider = await ask(store, OUTLIERS, {"method": "ingero", "k": 4})
    assert outliers(table_of(wider)) == []
    assert wider.structured_content["threshold"] == pytest.approx(0.915 - 4 * 0.015 * 1.4826)


async def test_method_ingero_counts_active_nodes_by_their_cgroup(store: Store) -> None:
    active = saying(samples({f"a{place}": [0.9] for place in range(5)}), ingero__node__state="active")
    idle = saying(samples({f"i{place}": [0.1] for place in range(9)}), ingero__node__state="idle")
    other = saying(samples({f"b{place}": [0.5] for place in range(4)}), ingero__cgroup_path_hash="bbbb")
    put(store, active + idle + other)
    result = await ask(store, OUTLIERS, {"method": "ingero"})
    rows = table_of(result)
    assert {(row["cohort"], row["threshold"]) for row in rows} == {("", 0.9), ("cgroup bbbb", None)}
    assert not outliers(rows) and not any(row["node_id"].startswith("i") for row in rows)
    assert "cgroup bbbb: 4 active nodes, of which there must be 5 for a threshold" in text_of(result)


@pytest.mark.parametrize("more", [{"threshold": 0.4}, {"direction": "above"}, {"metric": "gpu.power.draw_w"}])
async def test_method_ingero_is_for_health_scores_and_makes_its_own_threshold(
    store: Store, more: dict[str, Any]
) -> None:
    put(store, samples({"n1": [0.9]}) + samples({"n1": [0.9]}, metric_name="gpu.power.draw_w"))
    refused = await ask(store, OUTLIERS, {"method": "ingero", **more})
    assert refused.is_error
    assert "method ingero makes its own threshold" in text_of(refused)
