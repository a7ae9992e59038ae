"""Samples become batches of events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.batches import batch
from ingero_mcp.importers.imported import Names
from ingero_mcp.importers.text import one_line
from ingero_mcp.importers.xpu_timer.samples import PREFIX, Sample

RANK: Final = "rank"
WORLD_SIZE: Final = "world_size"

_NODE: Final = "pod_name"
_JOB: Final = "job_name"
_NOT_SET: Final = "NOT_SET"  # what xpu_timer writes for a name that it was not given
_COMMON: Final = "COMMON_"
_NAME_PREFIX: Final = "xpu_timer."
_INTEGERS: Final = (RANK, "local_rank", WORLD_SIZE)
_MAX_NAME: Final = 255
_BATCH_ROWS: Final = 1 << 16  # stores recognise batches by number: with another size they would not


def event_batches(samples: Sequence[Sample], names: Names, time_ns: int, first_seq: int) -> Iterator[pa.RecordBatch]:
    """The events in the order of the samples, numbered from `first_seq`.

    `time_ns` is the time of those that do not say theirs, `names` are for what labels do not say.
    """
    for start in range(0, len(samples), _BATCH_ROWS):
        part = samples[start : start + _BATCH_ROWS]
        metrics = [metric_name(sample.name) for sample in part]
        integers = {label: [whole_number(sample.labels, label) for sample in part] for label in _INTEGERS}
        columns: dict[str, Any] = {
            "cluster_id": names.cluster,
            "node_id": [_name(sample.labels, _NODE) or names.node for sample in part],
            "job_id": [_name(sample.labels, _JOB) for sample in part],
            "event_seq": range(first_seq + start, first_seq + start + len(part)),
            "timestamp_ns": [time_ns if sample.time_ns is None else sample.time_ns for sample in part],
            "source": [semconv.source_of(metric) for metric in metrics],
            "metric_name": metrics,
            "value_double": [sample.value for sample in part],
            "attrs_json": [_attributes(sample.labels) for sample in part],
        }
        yield batch(columns | integers, len(part))


def metric_name(name: str) -> str:
    """The name of the event: XPU_TIMER_COMMON_HANG is xpu_timer.hang, XPU_TIMER_MM_KERNEL_FLOPS keeps its kind."""
    return _NAME_PREFIX + name.removeprefix(PREFIX).removeprefix(_COMMON).lower()


def whole_number(labels: Mapping[str, str], label: str) -> int | None:
    """The value of a label that is a count or a rank; None where it is not."""
    text = labels.get(label, "")
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _name(labels: Mapping[str, str], label: str) -> str | None:
    text = labels.get(label, "")
    # A colon would divide node and number in an event's id at the wrong place.
    fits = 0 < len(text) <= _MAX_NAME and text.isprintable() and (label != _NODE or ":" not in text)
    return text if fits and text != _NOT_SET else None


def _attributes(labels: Mapping[str, str]) -> str:
    """Every label that has no column, and those whose column could not take the value."""
    rest = {
        label: text if text.isprintable() and len(text) <= _MAX_NAME else one_line(text, _MAX_NAME)
        for label, text in labels.items()
        if (label not in _INTEGERS or whole_number(labels, label) is None)
        and (label not in (_NODE, _JOB) or _name(labels, label) is None)
    }
    return json.dumps(rest, separators=(",", ":"), sort_keys=True)
