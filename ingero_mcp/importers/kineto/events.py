"""The last step of reading a trace: columns of numbers become batches of events in time order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.batches import batch
from ingero_mcp.importers.kineto.columns import NONE, Columns, Detail, Int64s
from ingero_mcp.importers.kineto.identity import Identity

TIME_BASE: Final = "ingero.time_base"
CORRELATION: Final = "cuda.correlation"
BATCH_ROWS: Final = 1 << 16  # stores recognise batches by number: with another size they would not

_NUMBERS: Final = ("duration_ns", "bytes", "correlation", "site", "thread", "stream", "detail")
_FROM_DETAIL: Final = ("comm_id", "coll_seq", "nranks", "trace_id")
_NO_DETAIL: Final = Detail()


@dataclass(frozen=True, slots=True)
class Rows:
    """What a trace became. `order` are the rows that are handed out, in time order; `times_ns` and `steps` are of all
    rows. `process_id` is that of the one process that wrote the trace, if it is known.
    """

    columns: Columns
    order: Int64s
    times_ns: Int64s
    steps: Int64s
    relative: bool
    process_id: int | None
    process: str | None


def event_batches(rows: Rows, identity: Identity, cluster_id: str, first_seq: int) -> Iterator[pa.RecordBatch]:
    """The events of a trace in time order, numbered from `first_seq`."""
    numbers = {name: rows.columns.numbers(name) for name in _NUMBERS}
    for start in range(0, len(rows.order), BATCH_ROWS):
        chosen = rows.order[start : start + BATCH_ROWS]
        part = {name: column[chosen] for name, column in numbers.items()}
        seq = first_seq + start
        columns: dict[str, Any] = {
            "cluster_id": cluster_id,
            "node_id": identity.node_id,
            "job_id": identity.job_id,
            "rank": identity.rank,
            "world_size": identity.world_size,
            "process": rows.process,
            "event_seq": range(seq, seq + len(chosen)),
            "timestamp_ns": pa.array(rows.times_ns[chosen]),
            "attrs_json": _attributes(rows, part),
        }
        columns |= {name: _known(part[name]) for name in ("duration_ns", "bytes")}
        columns |= _of_sites(rows.columns, part["site"]) | _of_threads(rows, part["thread"])
        columns |= _of_details(rows, part["detail"], rows.steps[chosen])
        yield batch(columns, len(chosen))


def _known(numbers: Int64s) -> pa.Array[Any]:
    return pa.array(numbers, mask=numbers == NONE)


def _of_sites(columns: Columns, site: Int64s) -> dict[str, Any]:
    values: dict[str, list[str | None]] = {
        "metric_name": [site.name for site in columns.sites],
        "source": [site.source for site in columns.sites],
        "timing_source": [site.timing_source for site in columns.sites],
    }
    return {name: pa.array(value, pa.string()).take(site) for name, value in values.items()}


def _of_threads(rows: Rows, thread: Int64s) -> dict[str, Any]:
    # The process that is known for the GPU is the one that launched its work.
    threads = [*rows.columns.threads, (rows.process_id, None)]
    where: Int64s = np.where(thread == NONE, len(threads) - 1, thread)
    return {
        name: pa.array([ids[place] for ids in threads], pa.int64()).take(where)
        for place, name in enumerate(("pid", "tid"))
    }


def _of_details(rows: Rows, detail: Int64s, steps: Int64s) -> dict[str, Any]:
    found = [rows.columns.details[number] if number != NONE else _NO_DETAIL for number in detail.tolist()]
    columns: dict[str, Any] = {name: [getattr(one, name) for one in found] for name in _FROM_DETAIL}
    own = np.array([NONE if one.step is None else one.step for one in found])
    columns["step"] = _known(np.where(own == NONE, steps, own))
    return columns


def _attributes(rows: Rows, part: dict[str, Int64s]) -> list[str]:
    of_site = [site.attrs for site in rows.columns.sites]
    details = rows.columns.details
    base = f"{json.dumps(TIME_BASE)}:{json.dumps('relative')}" if rows.relative else ""
    texts = []
    numbers = (part[name].tolist() for name in ("site", "stream", "correlation", "detail"))
    for site, stream, correlation, detail in zip(*numbers, strict=True):
        members = [
            of_site[site],
            details[detail].attrs if detail != NONE else "",
            f'"{semconv.CUDA_STREAM}":{stream}' if stream != NONE else "",
            f'"{CORRELATION}":{correlation}' if correlation != NONE else "",
            base,
        ]
        texts.append(f"{{{','.join(filter(None, members))}}}")
    return texts
