"""The thresholds of a server: who counts, for how long, what a sender is told, and what is bounded."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ingero_mcp import thresholds as module
from ingero_mcp.analysis.threshold import NONE, Rule
from ingero_mcp.batches import batch
from ingero_mcp.semconv import CGROUP_PATH_HASH, HEALTH_SCORE, NODE_STATE, UNKNOWN
from ingero_mcp.thresholds import Thresholds, as_text

NOON = 1_796_040_000_000_000_000
SECOND = 1_000_000_000
FIVE = {"n1": 0.90, "n2": 0.91, "n3": 0.92, "n4": 0.93, "n5": 0.94}


class Fleet:
    """Agents that push on a clock that only moves when it is told to."""

    def __init__(self, rule: Rule | None = None) -> None:
        self.now_ns = NOON
        self.thresholds = Thresholds(rule or Rule(), 10, clock=lambda: self.now_ns)

    def push(
        self, values: dict[str, Any], *, cluster: str = "prod", late_s: float = 0, **attributes: str
    ) -> pa.RecordBatch:
        said = {NODE_STATE: "active", CGROUP_PATH_HASH: "", **attributes}
        pushed = batch(
            {
                "cluster_id": cluster,
                "node_id": list(values),
                "metric_name": HEALTH_SCORE,
                "timestamp_ns": int(self.now_ns - late_s * SECOND),
                "value_double": list(values.values()),
                "attrs_json": json.dumps(said),
            },
            len(values),
        )
        self.thresholds.learn(pushed)
        return pushed

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)

    def of(self, cluster: str = "prod", cohort: str | None = None) -> float | None:
        """The threshold, None without a quorum."""
        found = self.thresholds.of(cluster, cohort)
        return found.value if found.quorum_met else None

    def rounds(self, count: int, values: dict[str, Any], **how: Any) -> None:
        for _ in range(count):
            self.push(values, **how)
            self.sleep(10)


EXACT = 0.92 - 2 * 0.01 * 1.4826


def test_five_active_nodes_make_a_threshold_and_four_do_not() -> None:
    fleet = Fleet()
    fleet.rounds(1, dict(list(FIVE.items())[:4]))
    assert fleet.of() is None
    assert fleet.thresholds.of("prod").value == 0
    fleet.rounds(1, FIVE)
    assert fleet.of() == pytest.approx(EXACT)


def test_it_is_renewed_every_ten_seconds_and_not_in_between() -> None:
    fleet = Fleet(Rule(ema_alpha=1.0))
    fleet.rounds(1, FIVE)
    first = fleet.of()
    fleet.push({node: score - 0.4 for node, score in FIVE.items()})
    fleet.sleep(9.9)
    assert fleet.of() == first
    fleet.sleep(0.1)
    assert fleet.of() == pytest.approx(EXACT - 0.4)


def test_a_change_comes_smoothed() -> None:
    fleet = Fleet()
    fleet.rounds(1, FIVE)
    assert fleet.of() == pytest.approx(EXACT)
    fleet.rounds(1, {node: score - 0.5 for node, score in FIVE.items()})
    assert fleet.of() == pytest.approx(EXACT - 0.2 * 0.5)
    fleet.rounds(40, {node: score - 0.5 for node, score in FIVE.items()})
    assert fleet.of() == pytest.approx(EXACT - 0.5, abs=1e-4)


def test_a_silent_node_counts_for_fifty_seconds() -> None:
    fleet = Fleet()
    fleet.rounds(1, FIVE)
    four = {node: score for node, score in FIVE.items() if node != "n1"}
    fleet.rounds(3, four)
    assert fleet.of() == pytest.approx(EXACT)
    fleet.rounds(1, four)
    assert fleet.of() is None


@pytest.mark.parametrize("state", ["idle", "calibrating"])
def test_only_active_nodes_count(state: str) -> None:
    fleet = Fleet()
    fleet.rounds(1, FIVE)
    assert fleet.of() is not None
    fleet.rounds(1, {"n1": 0.9}, **{NODE_STATE: state})
    assert fleet.of() is None


def test_after_a_time_without_quorum_nothing_old_is_left_in_it() -> None:
    fleet = Fleet()
    fleet.rounds(3, dict.fromkeys(FIVE, 0.5))
    fleet.sleep(60)
    assert fleet.of() is None
    fleet.rounds(1, FIVE)
    assert fleet.of() == pytest.approx(EXACT)


def test_cohorts_of_a_cluster_have_a_threshold_each() -> None:
    fleet = Fleet()
    low = {f"i{place}": score - 0.6 for place, score in enumerate(FIVE.values())}
    for _ in range(2):
        fleet.push(FIVE, **{CGROUP_PATH_HASH: "aaaa"})
        fleet.rounds(1, low, **{CGROUP_PATH_HASH: "bbbb"})
    assert fleet.of(cohort="aaaa") == pytest.approx(EXACT)
    assert fleet.of(cohort="bbbb") == pytest.approx(EXACT - 0.6)
    # Whose threshold is meant cannot be told: better none than that of others.
    assert fleet.of() is None
    assert fleet.of("other") is None


def test_a_cluster_with_one_cohort_needs_no_hash() -> None:
    fleet = Fleet()
    fleet.rounds(2, FIVE, **{CGROUP_PATH_HASH: "aaaa"})
    assert fleet.of() == fleet.of(cohort="aaaa") == pytest.approx(EXACT)


def test_a_sender_is_told_the_threshold_of_its_own_cohort_whatever_it_pushes() -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.push(FIVE, **{CGROUP_PATH_HASH: "aaaa"})
        fleet.rounds(1, {f"i{place}": 0.4 for place in range(5)}, **{CGROUP_PATH_HASH: "bbbb"})
    # The event of a straggler names no cohort; its node is known by its scores.
    event = batch({"cluster_id": "prod", "node_id": ["i3"], "metric_name": "ingero.node.straggler_event"}, 1)
    told = fleet.thresholds.of_push(event, "prod")
    assert told is not None and told.value == pytest.approx(0.4)
    stranger = batch({"cluster_id": "prod", "node_id": ["new"], "metric_name": "m"}, 1)
    assert fleet.thresholds.of_push(stranger, "prod") == NONE
    assert fleet.thresholds.of_push(stranger, UNKNOWN) is None
    assert fleet.thresholds.of_push(batch({}, 0), UNKNOWN) is None


@pytest.mark.parametrize("score", [math.nan, math.inf, None, -0.1, 1.5, 1e300])
def test_what_is_no_score_is_left_out_and_counted(score: float | None) -> None:
    fleet = Fleet()
    for _ in range(2):
        fleet.push(FIVE)
        fleet.rounds(1, {"odd": score})
    assert fleet.of() == pytest.approx(EXACT)
    assert "ingero_fleet_scores_left_out_total 2.0" in series(fleet)


def test_old_scores_that_are_sent_late_do_not_count() -> None:
    fleet = Fleet()
    fleet.rounds(1, FIVE, late_s=3600)
    assert fleet.of() is None
    fleet.rounds(1, FIVE)
    fleet.push(dict.fromkeys(FIVE, 0.1), late_s=15)  # overtaken by newer ones
    fleet.sleep(10)
    assert fleet.of() == pytest.approx(EXACT)


def test_a_name_without_end_is_left_out() -> None:
    fleet = Fleet()
    fleet.rounds(2, {node * 200: score for node, score in FIVE.items()})
    assert fleet.of() is None


def test_no_more_nodes_are_kept_than_a_fleet_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NODES", 5)
    fleet = Fleet()
    fleet.rounds(1, FIVE)
    fleet.rounds(3, {f"more{place}": 0.1 for place in range(100)})
    assert fleet.of() == pytest.approx(EXACT)
    assert "ingero_fleet_scores_left_out_total 300.0" in series(fleet)


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    fleet = Fleet()
    fleet.rounds(1, FIVE)
    fleet.sleep(-3600)
    fleet.rounds(1, FIVE)
    assert fleet.of() is not None


def series(fleet: Fleet) -> str:
    registry = CollectorRegistry()
    registry.register(fleet.thresholds)
    return generate_latest(registry).decode()


def test_metrics_show_the_cohorts_with_most_nodes_and_no_more() -> None:
    fleet = Fleet(Rule(ema_alpha=1.0))
    many = {f"n{place}": 0.9 for place in range(7)} | {"bad": 0.2}
    for cohort in range(module.MAX_SERIES + 20):
        fleet.push({f"x{cohort}": 0.5}, **{CGROUP_PATH_HASH: f"{cohort:04}"})
    fleet.push(many, cluster='a"b\n')
    fleet.sleep(10)
    shown = series(fleet)
    labels = '{cgroup_path_hash="",cluster_id="a\\"b\\n"}'
    assert f"ingero_fleet_active_nodes{labels} 8.0" in shown
    assert f"ingero_fleet_threshold{labels} 0.9" in shown
    assert f"ingero_fleet_straggler_count{labels} 1.0" in shown
    assert f"ingero_fleet_mad{labels} 0.0" in shown
    assert shown.count("\ningero_fleet_median{") == module.MAX_SERIES


def test_texts_are_those_that_an_agent_reads() -> None:
    assert as_text(NONE) == ("0", "false")
    fleet = Fleet()
    fleet.rounds(2, FIVE)
    value, met = as_text(fleet.thresholds.of("prod"))
    assert (float(value), met) == (pytest.approx(EXACT, abs=1e-6), "true")
