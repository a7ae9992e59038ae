"""From the rows of an op trace to rows that only lack their constants to be events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp.importers.optrace.layout import Layout
from ingero_mcp.importers.optrace.sites import OPERATIONS, Site, site_at
from ingero_mcp.importers.optrace.time import lay_end_to_end
from ingero_mcp.importers.sequence import Numbered, number

Places = dict[int, tuple[int, int]]
"""Rank -> (stage, dp_rank)."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a trace in time order.

    `table` has timestamp_ns, duration_ns, rank, step, coll_seq (null without a communicator), mb_id and mc
    (-1 where they do not apply), and site: the index into `sites`.
    """

    table: pa.Table
    sites: tuple[Site, ...]
    ranks: int
    steps: int
    warnings: tuple[str, ...]


def arrange(trace: pa.Table, layout: Layout, epoch_ns: int) -> Rows:
    """Put a checked trace on one clock, find the communicators and number their operations.

    Raises ValueError for rows that contradict each other.
    """
    places = _places(trace, layout)
    usual = all(rank == layout.usual_rank(*place) for rank, place in places.items())
    site_of_row, sites = _sites(trace, layout, places, usual)
    timestamps, steps = lay_end_to_end(trace, epoch_ns)
    rows = trace.append_column("site", site_of_row).append_column("timestamp_ns", timestamps)
    coll_seq, warnings = _coll_seq(rows, sites)
    rows = rows.append_column("coll_seq", coll_seq)
    return Rows(
        table=rows.sort_by([(name, "ascending") for name in ("timestamp_ns", "step", "rank", "site", "seq_id")]),
        sites=sites,
        ranks=len(places),
        steps=steps,
        warnings=(*_layout_warnings(layout, len(places), usual), *_name_warnings(trace), *warnings),
    )


def _places(trace: pa.Table, layout: Layout) -> Places:
    found = trace.group_by(["rank", "stage", "dp_rank"], use_threads=False).aggregate([])
    ranks: Places = {}
    owners: dict[tuple[int, int], int] = {}
    # With more places than ranks the contradiction lies in the first ones already.
    for row in found.slice(0, layout.world_size + 1).to_pylist():
        rank, place = row["rank"], (row["stage"], row["dp_rank"])
        other_place, other_rank = ranks.setdefault(rank, place), owners.setdefault(place, rank)
        if other_place != place:
            raise ValueError(f"rank {rank} is at {_text(other_place)} and at {_text(place)}")
        if other_rank != rank:
            raise ValueError(
                f"ranks {other_rank} and {rank} are both at {_text(place)}; "
                "one rank per tensor-parallel group is expected"
            )
    return ranks


def _text(place: tuple[int, int]) -> str:
    return f"stage {place[0]}, dp_rank {place[1]}"


def _sites(trace: pa.Table, layout: Layout, places: Places, usual: bool) -> tuple[pa.Array[Any], tuple[Site, ...]]:
    names = _names(trace)
    name = pc.index_in(trace.column("optype").cast(pa.string()), pa.array(names))
    key: Any = pc.add(pc.multiply(trace.column("rank").cast(pa.int64()), len(names)), name)
    keys = sorted(pc.unique(key).to_pylist())
    sites = []
    for rank, index in (divmod(value, len(names)) for value in keys):
        tp_rank = rank % layout.tp_size if usual else None
        sites.append(site_at(layout, *places[rank], names[index], tp_rank))
    return pc.index_in(key, pa.array(keys)), tuple(sites)


def _coll_seq(rows: pa.Table, sites: tuple[Site, ...]) -> tuple[pa.Array[Any], list[str]]:
    site_of_row = rows.column("site").combine_chunks()
    step = pc.rank(rows.column("step"), tiebreaker="dense")
    seq_id = rows.column("seq_id")
    if pc.count_distinct(_key(site_of_row, step, seq_id)).as_py() < len(rows):
        raise ValueError("an operation (rank, step, optype, seq_id) is there more than once")
    channel = pa.array([site.channel for site in sites]).dictionary_encode().indices.take(site_of_row)
    match = pa.array([site.match for site in sites]).dictionary_encode().indices.take(site_of_row)
    has_channel = pa.array([bool(site.channel) for site in sites]).take(site_of_row)
    operations = pa.table(
        {
            "channel": channel,
            "operation": _key(channel, match, step, seq_id),
            "rank": rows.column("rank"),
            "start_ns": rows.column("timestamp_ns"),
            "end_ns": pc.add(rows.column("timestamp_ns"), rows.column("duration_ns")),
        }
    )
    numbered = number(operations.filter(has_channel))
    coll_seq: pa.Array[Any] = pc.replace_with_mask(pa.nulls(len(rows), pa.int64()), has_channel, numbered.numbers)
    return coll_seq, _fit_warnings(numbered)


def _key(*parts: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any] | pa.ChunkedArray[Any]:
    # One integer that differs wherever one of the parts differs.
    key = parts[0].cast(pa.int64())
    for part in parts[1:]:
        try:
            key = pc.multiply_checked(key, pc.max(part).as_py() + 1)
            key = pc.add_checked(key, part.cast(pa.int64()))
        except pa.ArrowInvalid as error:
            raise ValueError("more ranks, steps and operations than can be told apart") from error
    return key


def _layout_warnings(layout: Layout, ranks: int, usual: bool) -> list[str]:
    warnings = [
        "the trace names no hosts: node_id is 'unknown' for every rank",
        "the trace has no absolute time and none between steps: they are laid end to end",
    ]
    if ranks < layout.world_size:
        warnings.append(f"{ranks} of {layout.world_size} ranks were recorded")
    if not usual:
        warnings.append(
            "ranks are not counted tensor, data, pipeline: groups follow dp_rank and stage, "
            "and the place of a rank in its tensor-parallel group is unknown"
        )
    if layout.dsp_size > 1:
        warnings.append("dsp_size is above 1: gradients are taken to be shared by dp_size * dsp_size ranks")
    if layout.vpp_size > 1:
        warnings.append("vpp_size is above 1: sends and receives are paired by order alone, and may be off")
    return warnings


def _name_warnings(trace: pa.Table) -> list[str]:
    unknown = [name for name in _names(trace) if name not in OPERATIONS]
    if not unknown:
        return []
    return [f"unknown operations are kept as op.NAME, without a communicator: {', '.join(unknown)}"]


def _names(trace: pa.Table) -> list[str]:
    return sorted(str(name) for name in pc.unique(trace.column("optype")))


def _fit_warnings(numbered: Numbered) -> list[str]:
    warnings = []
    if numbered.incomplete:
        warnings.append(f"{numbered.incomplete} of {numbered.operations} communications lack the row of a rank in them")
    if numbered.apart:
        warnings.append(
            f"in {numbered.apart} of {numbered.operations} communications the rows do not overlap in time: "
            "they are paired wrongly, or the clocks of the ranks disagree"
        )
    return warnings
