"""What a timeline is made of, read from a store in the order of the common clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import Any, Final

from ingero_mcp.export.happenings import COLUMNS, Clock, ClockName, Clocks, Happening, Item, Marker, Reading
from ingero_mcp.export.tracks import Place, place_of
from ingero_mcp.exported.pieces import Extent, Relation, extent, tables
from ingero_mcp.exported.scope import Scope
from ingero_mcp.semconv import UNKNOWN
from ingero_mcp.tools.call import Call

MOST_PLACES: Final = 100_000
_MOST_CLOCKS: Final = 100_000
_CHAIN_TIME: Final = "coalesce(start_ns, detected_ns)"
_CHAIN_FACTS: Final = (
    "chain_id", "kind", "op", "root_cause", "explanation", "recommendations", "detected_ns", "end_ns", "p99_us",
    "tail_ratio", "verdict", "cause", "confidence", "ranks", "nodes",
)  # fmt: skip
_CHAIN_COLUMNS: Final = ("cluster_id", "node_id", "rank", "job_id", "severity", "summary", *_CHAIN_FACTS)
_LOAD: Final = {
    "CPU of the host, %": "cpu_pct",
    "memory of the host, %": "mem_pct",
    "available memory, MB": "mem_available_mb",
    "swap, MB": "swap_mb",
    "load average": "load_avg",
}
# One offset for each clock and export, so that the order of a node's events stays as it was; how far the clock went
# from that is added to what it may be wrong by.
_MEDIANS: Final = (
    "SELECT {names}, max(abs(clocks.offset_ns - median.offset_ns) + bound_ns) AS bound_ns, "
    "bool_and(bound_ns IS NOT NULL) AS is_bounded, any_value(median.offset_ns) AS offset_ns FROM clocks JOIN "
    "(SELECT cluster_id, node_id, rank, quantile_disc(offset_ns, 0.5) AS offset_ns FROM clocks GROUP BY ALL) AS median "
    "ON clocks.cluster_id = median.cluster_id AND clocks.node_id = median.node_id "
    "AND clocks.rank IS NOT DISTINCT FROM median.rank GROUP BY {names}"
)
_CLOCK: Final = "clock, ms ahead of the reference"
_CLOCK_NAMES: Final = "clocks.cluster_id, clocks.node_id, clocks.rank"


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline before it is read: how many events there are, where, and by which clocks."""

    call: Call
    scope: Scope
    events: Relation
    extent: Extent
    places: list[Place]
    clocks: Clocks

    def items(self) -> Iterator[Item]:
        """Everything in the order of time."""
        parts = (self._chains(), self._loads(), self._readings(), self._happenings())
        return merge(*parts, key=attrgetter("at_ns"))

    def _happenings(self) -> Iterator[Item]:
        for table in tables(self.call, self.events, self.extent):
            yield from map(Happening._make, zip(*(column.to_pylist() for column in table.columns), strict=True))

    def _chains(self) -> Iterator[Item]:
        where = f"{_CHAIN_TIME} IS NOT NULL AND {self.scope.chains(_CHAIN_TIME)}"
        texts = ("summary", "root_cause", "explanation", "recommendations")
        columns = f"{_CHAIN_TIME} AS at_ns, {', '.join(_CHAIN_COLUMNS)}"
        relation = Relation("chains", columns, _CHAIN_TIME, "chain_id", texts, ("chain_id", "summary"), where)
        for row in self._rows(relation):
            facts = {name: row[name] for name in _CHAIN_FACTS}
            places = {name: row[name] for name in _CHAIN_COLUMNS[:6]}
            yield Marker(self._common(row), facts=facts, **places)

    def _loads(self) -> Iterator[Item]:
        columns = f"timestamp_ns AS at_ns, cluster_id, node_id, NULL AS rank, {', '.join(_LOAD.values())}"
        where = self.scope.of_nodes("timestamp_ns")
        for row in self._rows(Relation("snapshots", columns, "timestamp_ns", "node_id", (), ("node_id",), where)):
            for name, column in _LOAD.items():
                yield self._reading(row, name, {"value": row[column]})

    def _readings(self) -> Iterator[Item]:
        columns = "at_ns, cluster_id, node_id, rank, offset_ns / 1e6 AS ahead_ms, bound_ns / 1e6 AS bound_ms"
        where = self.scope.of_nodes("at_ns")
        for row in self._rows(Relation("clocks", columns, "at_ns", "node_id", (), ("node_id", "rank"), where)):
            values = {"ahead": row["ahead_ms"], "right within": row["bound_ms"]}
            yield self._reading(row, _CLOCK, values)

    def _reading(self, row: Mapping[str, Any], name: str, values: Mapping[str, Any]) -> Reading:
        return Reading(self._common(row), row["cluster_id"], row["node_id"], row["rank"], name, values)

    def _common(self, row: Mapping[str, Any]) -> int:
        """The time of a row on the common clock."""
        clock = self.clocks.of(row["cluster_id"], row["node_id"], row["rank"])
        return int(row["at_ns"]) - (clock.offset_ns if clock is not None else 0)

    def _rows(self, relation: Relation) -> Iterator[dict[str, Any]]:
        """In the order of the common clock within a piece; pieces are in the order of the nodes' own clocks."""
        for table in tables(self.call, relation, extent(self.call, relation)):
            rows: list[dict[str, Any]] = table.to_pylist()
            yield from sorted(rows, key=self._common)


def timeline(call: Call, scope: Scope) -> Timeline:
    """Look what there is; nothing of it is read yet."""
    clocks = _clocks(call)
    events = _events(scope, [clock.offset_ns for clock in clocks.values()])
    places = call.read(
        f"SELECT DISTINCT cluster_id, node_id, job_id, rank FROM events WHERE {scope.events()} LIMIT {MOST_PLACES}",
        MOST_PLACES,
    ).rows
    found: list[Place] = [place_of(*_names(row)) for row in places]
    return Timeline(call, scope, events, extent(call, events), found, Clocks(clocks))


def _events(scope: Scope, offsets_ns: list[int]) -> Relation:
    then = "duration_ns DESC NULLS LAST, cluster_id, node_id, event_seq"
    texts, identity = ("attrs_json", "metric_name", "process"), ("node_id", "event_seq", "metric_name")
    columns = ", ".join(COLUMNS)
    if not any(offsets_ns):
        time = "timestamp_ns"
        return Relation("events", f"{time} AS at_ns, {columns}", time, then, texts, identity, scope.events())
    node = f"coalesce(node_id, '{UNKNOWN}')"
    clock = (
        f"clock_cluster = coalesce(cluster_id, '{UNKNOWN}') AND clock_node = {node} "
        f"AND clock_rank IS NOT DISTINCT FROM CASE WHEN {node} = '{UNKNOWN}' THEN rank END"
    )
    medians = (
        "SELECT cluster_id AS clock_cluster, node_id AS clock_node, rank AS clock_rank, "
        "quantile_disc(offset_ns, 0.5) AS ahead_ns FROM clocks GROUP BY ALL"
    )
    # A time so far out that it cannot be corrected stays as it is.
    time = "coalesce(TRY(timestamp_ns - ahead_ns), timestamp_ns)"
    return Relation(
        f"events LEFT JOIN ({medians}) AS medians ON {clock}",
        f"{time} AS at_ns, {columns}",
        time,
        then,
        texts,
        identity,
        scope.events(),
        "timestamp_ns",
        behind_ns=max(0, -min(offsets_ns)),
        ahead_ns=max(0, *offsets_ns),
    )


def _clocks(call: Call) -> dict[ClockName, Clock]:
    """Every clock that was compared with another one, and the references, which are right by definition."""
    found: dict[ClockName, Clock] = {}
    rows = call.read("SELECT DISTINCT cluster_id, reference FROM clocks WHERE reference IS NOT NULL", _MOST_CLOCKS).rows
    for cluster, reference in rows:
        name = str(reference)
        rank = name.removeprefix("rank ")
        is_rank = name != rank and rank.isdecimal()
        found[str(cluster), UNKNOWN if is_rank else name, int(rank) if is_rank else None] = Clock(0, 0)
    for cluster, node, rank_, bound_ns, is_bounded, offset_ns in call.read(
        _MEDIANS.format(names=_CLOCK_NAMES), _MOST_CLOCKS
    ).rows:
        bound = int(str(bound_ns)) if is_bounded and bound_ns is not None else None
        found[str(cluster), str(node), rank_ if isinstance(rank_, int) else None] = Clock(int(str(offset_ns)), bound)
    return found


def _names(row: tuple[object, ...]) -> tuple[str | None, str | None, str | None, int | None]:
    cluster, node, job, rank = row
    texts = [str(name) if name is not None else None for name in (cluster, node, job)]
    return texts[0], texts[1], texts[2], rank if isinstance(rank, int) else None
