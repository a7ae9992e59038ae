"""The job of the demo with a beginning and an end of what goes wrong, as rows of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ingero_mcp.notice import Notice
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.encode import encode_points, encode_spans
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.synth.story import Story, Truth

START_NS = 1_796_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Phases(Truth):
    """The story of the demo with an end: the rank is late only from one step to another."""

    bad_from: int = 400
    bad_until: int = 800

    def is_bad(self, step: int) -> bool:
        return self.bad_from <= step < self.bad_until and step % self.every == 0


def story(truth: Truth, start_ns: int = START_NS) -> pa.Table:
    """The events of the demo's job as rows."""
    told = Story(start_ns)
    told.truth = truth
    decoder, arrival = Decoder(), Arrival(start_ns)
    batches: list[pa.RecordBatch] = []
    for node, spans, points in told.tell():
        resource = told.resource(node)
        if spans:
            batches.append(decoder.decode("traces", encode_spans(resource, spans), arrival).batch)
        if points:
            batches.append(decoder.decode("logs", encode_points(resource, points), arrival).batch)
    return pa.Table.from_batches(batches)


def whats(told: Iterable[Notice]) -> Iterator[str]:
    """What was told, in order."""
    return (one.what for one in told)
