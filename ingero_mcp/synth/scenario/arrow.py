"""Blocks as Arrow batches of `events`: what the store would hold after receiving the same events over OTLP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingero_mcp import semconv
from ingero_mcp.batches import Values, batch
from ingero_mcp.events import STORED, AttributeValue
from ingero_mcp.synth.scenario.block import ABSENT, OPEN, Block, Template
from ingero_mcp.synth.scenario.who import Sender

BATCH_ROWS: Final = 1 << 16
_COLUMN_OF: Final = {key: (column.name, place) for column in STORED for place, key in enumerate(column.attributes)}
_TYPES: Final = {column.name: column.type for column in STORED}


def batches(numbered: Block, event_seq: Any, sender: Sender) -> Iterator[pa.RecordBatch]:
    """The events in their order, with these numbers."""
    for start in range(0, len(numbered), BATCH_ROWS):
        part = numbered.where(slice(start, start + BATCH_ROWS))
        yield _batch(part, event_seq[start : start + BATCH_ROWS], sender)


def _batch(events: Block, event_seq: Any, sender: Sender) -> pa.RecordBatch:
    rows = len(events)
    columns: dict[str, Values] = {"event_seq": pa.array(event_seq)}
    columns |= _constants(sender, rows)
    columns |= _by_index(events.template, [_split(template)[0] for template in events.templates])
    columns |= _by_index(events.host, [{"node_id": sender.node(host)} for host in range(len(sender.layout.hosts))])
    members = [*_members_of_templates(events), *_members_of_columns(events), *_members_of_ranks(events, sender)]
    columns |= _by_rank(events, sender, columns)
    columns |= {
        _COLUMN_OF[key][0]: _nullable(column, _COLUMN_OF[key][0], columns)
        for key, column in events.columns.items()
        if key in _COLUMN_OF
    }
    columns |= _times_and_values(events)
    columns |= _ids(events, event_seq, sender)
    columns["attrs_json"] = pc.binary_join_element_wise("{", *members, _resource_members(sender), "}", "")
    return batch(columns, rows)


def _constants(sender: Sender, rows: int) -> dict[str, Values]:
    layout = sender.layout
    return {"cluster_id": sender.cluster, "job_id": layout.job_id, "world_size": layout.world} if rows else {}


def _split(template: Template) -> tuple[dict[str, Any], str]:
    """The columns that the attributes of a template fill, and the others as JSON members."""
    filled: dict[str, Any] = {"metric_name": template.name, "source": semconv.source_of(template.name)}
    rest: dict[str, AttributeValue] = {}
    for key, value in template.attributes.items():
        column, place = _COLUMN_OF.get(key, ("", 0))
        if column:
            filled[column] = value
        if not column or place:
            rest[key] = value
    if template.signal == "span" and semconv.CUDA_RETURN_CODE in template.attributes:
        filled["status"] = "ok" if template.attributes[semconv.CUDA_RETURN_CODE] == 0 else "error"
    if template.signal == "sample":
        rest |= {"otlp.metric.kind": "gauge"} | ({"otlp.metric.unit": template.unit} if template.unit else {})
    return filled, _members(rest)


def _members(attributes: Mapping[str, AttributeValue]) -> str:
    text = json.dumps(attributes, separators=(",", ":"), ensure_ascii=False)[1:-1]
    return f"{text}," if text else ""


def _by_index(index: Any, values: list[dict[str, Any]]) -> dict[str, Values]:
    """A column per key, from one dictionary per index."""
    keys = dict.fromkeys(key for value in values for key in value)
    taken: Any = pa.array(index)
    return {key: pa.array([value.get(key) for value in values], _arrow(key)).take(taken) for key in keys}


def _arrow(column: str) -> pa.DataType:
    types: dict[str, pa.DataType] = {
        "VARCHAR": pa.string(),
        "BIGINT": pa.int64(),
        "INTEGER": pa.int32(),
        "DOUBLE": pa.float64(),
    }
    return types[_TYPES[column]]


def _by_rank(events: Block, sender: Sender, columns: Mapping[str, Any]) -> dict[str, Values]:
    """The columns of the ranks; events of a host have none."""
    of_rank = [sender.of_rank(rank) for rank in range(sender.layout.world)]
    filled = [{_COLUMN_OF[key][0]: value for key, value in one.items() if key in _COLUMN_OF} for one in of_rank]
    index = np.where(events.rank < 0, len(filled), events.rank)
    taken = _by_index(index, [*filled, {}])
    return {key: pc.coalesce(columns[key], value) if key in columns else value for key, value in taken.items()}


def _members_of_ranks(events: Block, sender: Sender) -> list[Any]:
    texts = []
    for rank in range(sender.layout.world):
        rest = {key: value for key, value in sender.of_rank(rank).items() if key not in _COLUMN_OF}
        texts.append(_members(rest))
    index: Any = pa.array(np.where(events.rank < 0, len(texts), events.rank))
    return [pa.array([*texts, ""]).take(index)]


def _members_of_templates(events: Block) -> list[Any]:
    index: Any = pa.array(events.template)
    return [pa.array([_split(template)[1] for template in events.templates], pa.string()).take(index)]


def _members_of_columns(events: Block) -> list[Any]:
    found: list[Any] = []
    for key, column in events.columns.items():
        if key in _COLUMN_OF and _COLUMN_OF[key][1] == 0:
            continue
        values: Any = pa.array(column)
        text = pc.binary_join_element_wise(f'"{key}":', values.cast(pa.string()), ",", "")
        found.append(pc.if_else(pa.array(column == ABSENT), "", text))
    is_open = pa.array(events.end_ns == OPEN)
    found.append(pc.if_else(is_open, '"otlp.span.end_raw_ns":0,', ""))
    return found


def _nullable(column: Any, name: str, columns: Mapping[str, Values]) -> Any:
    values = pa.array(column, mask=column == ABSENT).cast(_arrow(name))
    known = columns.get(name)
    return values if known is None else pc.coalesce(values, known)


def _times_and_values(events: Block) -> dict[str, Values]:
    signals = np.array([template.signal for template in events.templates])[events.template]
    lasts = (signals == "span") & (events.end_ns != OPEN)
    is_value = signals == "sample"
    return {
        "timestamp_ns": pa.array(events.start_ns),
        "duration_ns": pa.array(events.end_ns - events.start_ns, mask=~lasts),
        "value_double": pa.array(events.value, mask=~is_value),
    }


def _ids(events: Block, event_seq: Any, sender: Sender) -> dict[str, Values]:
    signals = np.array([template.signal for template in events.templates])[events.template]
    is_span = pa.array(signals == "span")
    layout = sender.layout
    comms = [trace_prefix(layout.job_id, comm.id) for comm in layout.comms]
    hosts = [trace_prefix(layout.job_id, name) for name in layout.hosts]
    index: Any = pa.array(np.where(events.trace >= 0, events.trace, len(comms) + events.host))
    prefix = pa.array([*comms, *hosts]).take(index)
    seq = events.columns.get(semconv.NCCL_SEQ, np.zeros(len(events), np.int64))
    within = np.where(events.trace >= 0, seq, event_seq)
    trace = pc.binary_join_element_wise(prefix, _digits(within, 16), "")
    span = pc.binary_join_element_wise(_digits(events.host + 1, 4), _digits(event_seq, 12), "")
    nothing = pa.scalar(None, pa.string())
    return {
        "trace_id": pc.if_else(is_span, trace, nothing),
        "span_id": pc.if_else(is_span, span, nothing),
    }


def trace_prefix(job_id: str, what: str) -> str:
    """The first half of a trace id: the second is a number in it."""
    return blake2b(f"{job_id} {what}".encode(), digest_size=8).hexdigest()


def _digits(values: Any, width: int) -> Any:
    return pc.utf8_lpad(pa.array(values).cast(pa.string()), width=width, padding="0")


def _resource_members(sender: Sender) -> str:
    rest = {key: value for key, value in sender.resource(0).attributes.items() if key not in _COLUMN_OF}
    return _members(rest | {"otlp.scope.name": "ingero"})[:-1]
