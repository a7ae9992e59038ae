"""The thresholds that Ingero agents are told, from the health scores as they arrive.

A node counts with its latest score, for as long as it is active and goes on pushing. Nothing runs in the background:
who asks first after an interval has them made anew.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ingero_mcp import semconv
from ingero_mcp.analysis.threshold import NONE, Cohort, Rule, Threshold, threshold_of
from ingero_mcp.clock import WallClock, now_ns

MAX_NODES: Final = 10_000
"""Nodes that are kept; scores of further ones are left out and counted."""

LIFETIME: Final = 5
"""Push intervals after which a node that is silent no longer counts."""

MAX_SERIES: Final = 100
"""Cohorts that are shown on /metrics, those with most nodes: senders choose the names."""

_LONGEST_NAME: Final = 256
_READ: Final = ("cluster_id", "node_id", "timestamp_ns", "value_double", "attrs_json")


@dataclass(frozen=True, slots=True)
class _Node:
    """The latest score of a node: as of `at_ns` of its own clock, heard at `heard_ns` of ours."""

    cohort: Cohort
    score: float
    at_ns: int
    heard_ns: int
    is_active: bool


class Thresholds(Collector):
    """One threshold per cohort, renewed every push interval. Also their series for /metrics."""

    def __init__(self, rule: Rule, push_interval_s: float, *, clock: WallClock = now_ns) -> None:
        self._rule = rule
        self._interval_ns = int(push_interval_s * 1e9)
        self._clock = clock
        self._lock = Lock()
        self._nodes: dict[tuple[str, str], _Node] = {}
        self._current: dict[Cohort, Threshold] = {}
        self._renewed_ns: int | None = None
        self._left_out = 0

    def learn(self, events: pa.RecordBatch | pa.Table) -> None:
        """Take the health scores among the events (columns of `events`), the last of each node."""
        is_score = pc.equal(events.column("metric_name"), pa.scalar(semconv.HEALTH_SCORE))
        if not pc.any(is_score).as_py():
            return
        scores = events.select(list(_READ)).filter(is_score)
        nodes = list(zip(scores.column("cluster_id").to_pylist(), scores.column("node_id").to_pylist(), strict=True))
        last = {node: row for row, node in enumerate(nodes)}
        now = self._clock()
        with self._lock:
            for (cluster_id, node_id), row in last.items():
                at_ns, score, attributes = (
                    scores.column(name)[row].as_py() for name in ("timestamp_ns", "value_double", "attrs_json")
                )
                self._left_out += not self._put(str(cluster_id), str(node_id), at_ns, score, attributes, now)
            self._renew(now)

    def of_push(self, events: pa.RecordBatch, cluster_id: str) -> Threshold | None:
        """What who sent these events is to be told: the threshold of its node's cohort.

        Of a node that never sent a score, that of the cluster it named on its URL; None if it named none.
        """
        if len(events):
            sender = str(events.column("cluster_id")[-1]), str(events.column("node_id")[-1])
            with self._lock:
                self._renew(self._clock())
                if (node := self._nodes.get(sender)) is not None:
                    return self._current.get(node.cohort, NONE)
        return None if cluster_id == semconv.UNKNOWN else self.of(cluster_id)

    def of(self, cluster_id: str, cgroup_path_hash: str | None = None) -> Threshold:
        """The threshold of a cohort. Without a hash that of the agents that send none, or of the only cohort."""
        with self._lock:
            self._renew(self._clock())
            if cgroup_path_hash is not None:
                return self._current.get(Cohort(cluster_id, cgroup_path_hash), NONE)
            cohorts = [cohort for cohort in self._current if cohort.cluster_id == cluster_id]
            legacy = Cohort(cluster_id)
            if legacy not in cohorts and len(cohorts) == 1:
                return self._current[cohorts[0]]
            return self._current.get(legacy, NONE)

    def collect(self) -> Iterator[Metric]:
        """The series for /metrics."""
        with self._lock:
            self._renew(self._clock())
            current, left_out = dict(self._current), self._left_out
        shown = sorted(current.items(), key=lambda item: (-item[1].nodes, item[0]))[:MAX_SERIES]
        for name, doc, value in _SERIES:
            family = GaugeMetricFamily(f"ingero_fleet_{name}", doc, labels=("cluster_id", "cgroup_path_hash"))
            for cohort, threshold in shown:
                family.add_metric((cohort.cluster_id, cohort.cgroup_path_hash), float(getattr(threshold, value)))
            yield family
        yield CounterMetricFamily(
            "ingero_fleet_scores_left_out", "health scores that no threshold counts: no score, not new", value=left_out
        )

    def _put(self, cluster_id: str, node_id: str, at_ns: int, score: float, attributes: str, now: int) -> bool:
        key = cluster_id, node_id
        known = self._nodes.get(key)
        if known is not None and at_ns < known.at_ns:
            return True  # a batch that was overtaken
        said = _said(attributes)
        cohort = Cohort(cluster_id, said.get(semconv.CGROUP_PATH_HASH, ""))
        is_fresh = abs(at_ns - now) <= LIFETIME * self._interval_ns
        is_score = score is not None and 0 <= score <= 1
        is_short = max(map(len, (cluster_id, node_id, cohort.cgroup_path_hash))) <= _LONGEST_NAME
        if not (is_fresh and is_score and is_short) or (known is None and len(self._nodes) >= MAX_NODES):
            return False
        # An agent that does not say its state has none: every score of it counts.
        state = said.get(semconv.NODE_STATE, semconv.ACTIVE)
        self._nodes[key] = _Node(cohort, score, at_ns, now, state == semconv.ACTIVE)
        return True

    def _renew(self, now: int) -> None:
        if self._renewed_ns is not None and 0 <= now - self._renewed_ns < self._interval_ns:
            return
        self._renewed_ns = now
        oldest = now - LIFETIME * self._interval_ns
        self._nodes = {key: node for key, node in self._nodes.items() if node.heard_ns > oldest}
        scores: dict[Cohort, list[float]] = defaultdict(list)
        for node in self._nodes.values():
            if node.is_active:
                scores[node.cohort].append(node.score)
        # Without a quorum there is nothing to go on from: the next threshold is not smoothed with an old one.
        before = {cohort: known.value for cohort, known in self._current.items() if known.quorum_met}
        self._current = {cohort: threshold_of(own, self._rule, before.get(cohort)) for cohort, own in scores.items()}


def as_text(threshold: Threshold) -> tuple[str, str]:
    """The threshold and whether there is a quorum, as headers and metadata carry them: always both."""
    return f"{threshold.value:.6g}", "true" if threshold.quorum_met else "false"


_SERIES: Final = (
    ("active_nodes", "active nodes of a cohort", "nodes"),
    ("threshold", "health score under which an agent is a straggler; 0: no quorum", "value"),
    ("median", "median of the health scores of a cohort", "median"),
    ("mad", "median absolute deviation of these scores", "mad"),
    ("straggler_count", "active nodes under the threshold", "stragglers"),
)


def _said(attributes: str | None) -> dict[str, str]:
    """The attributes of a point that are texts."""
    found = json.loads(attributes) if attributes else {}
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
