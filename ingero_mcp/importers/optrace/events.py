"""The last step of reading an op trace: rows and sites become batches of events."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp import semconv
from ingero_mcp.batches import Values, batch
from ingero_mcp.importers.optrace.layout import Layout
from ingero_mcp.importers.optrace.rows import Rows
from ingero_mcp.importers.optrace.sites import Site

"""Which part of a pipeline stage an operation belongs to; written where a stage has more than one."""

_BATCH_ROWS: Final = 1 << 16  # stores recognise batches by number: with another size they would not
_FROM_ROW: Final = ("timestamp_ns", "duration_ns", "rank", "step", "coll_seq")


def event_batches(rows: Rows, layout: Layout, first_seq: int) -> Iterator[pa.RecordBatch]:
    """The events of a trace in time order, numbered from `first_seq`."""
    of_site = _site_columns(rows.sites)
    traces, attrs = _trace_prefixes(rows.sites, layout), pa.array([site.attrs[:-1] for site in rows.sites])
    for start in range(0, len(rows.table), _BATCH_ROWS):
        part = rows.table.slice(start, _BATCH_ROWS).combine_chunks()
        site = part.column("site")
        seq = first_seq + start
        columns: dict[str, Values] = {
            "cluster_id": layout.cluster_id,
            "node_id": semconv.UNKNOWN,
            "job_id": layout.job_id,
            "world_size": layout.world_size,
            "event_seq": range(seq, seq + len(part)),
            "trace_id": _join(traces.take(site), _sixteen_digits(part.column("coll_seq"))),
            "attrs_json": _join(attrs.take(site), _varying_members(part, rows.sites, layout), "}"),
        }
        columns |= {name: part.column(name) for name in _FROM_ROW}
        columns |= {name: values.take(site) for name, values in of_site.items()}
        yield batch(columns, len(part))


def _site_columns(sites: tuple[Site, ...]) -> dict[str, pa.Array[Any]]:
    names = [site.operation.event for site in sites]
    return {
        "metric_name": pa.array(names),
        # An operation of unknown name was timed on the GPU like the others.
        "source": pa.array(["gpu" if name.startswith("op.") else semconv.source_of(name) for name in names]),
        "timing_source": pa.array([site.operation.timing_source for site in sites]),
        "comm_id": pa.array([site.comm_id for site in sites], pa.string()),
        "nranks": pa.array([site.nranks for site in sites], pa.int32()),
    }


def _trace_prefixes(sites: tuple[Site, ...], layout: Layout) -> pa.Array[Any]:
    # A trace id is 16 digits for the channel and 16 for the number in it: equal on all ranks of an operation.
    def prefix(channel: str) -> str | None:
        text = f"{layout.job_id} {channel}"
        return blake2b(text.encode(), digest_size=8).hexdigest() if channel else None

    return pa.array([prefix(site.channel) for site in sites], pa.string())


def _varying_members(part: pa.Table, sites: tuple[Site, ...], layout: Layout) -> Any:
    has_micro_batch = pa.array([site.operation.has_micro_batch for site in sites]).take(part.column("site"))
    members = _member(semconv.MICRO_BATCH, pc.if_else(has_micro_batch, part.column("mb_id"), -1))
    if layout.vpp_size > 1:
        members = _join(members, _member(semconv.MODEL_CHUNK, part.column("mc")))
    return members


def _member(key: str, values: Any) -> Any:
    return pc.if_else(pc.less(values, pa.scalar(0)), "", _join(f',"{key}":', values.cast(pa.string())))


def _sixteen_digits(values: Any) -> Any:
    return pc.utf8_lpad(values.cast(pa.string()), width=16, padding="0")


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")
