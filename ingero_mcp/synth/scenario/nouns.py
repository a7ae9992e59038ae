"""Blocks as the nouns of events.py: what a program that sends the events would encode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Event, Point, Sample, Span
from ingero_mcp.synth.scenario.arrow import trace_prefix
from ingero_mcp.synth.scenario.block import ABSENT, OPEN, Block
from ingero_mcp.synth.scenario.who import Sender


def events(numbered: Block, event_seq: Any, sender: Sender) -> Iterator[tuple[int, Event]]:
    """The events in their order, each with the host that sends it."""
    of_rank = [sender.of_rank(rank) for rank in range(sender.layout.world)]
    keys = list(numbered.columns)
    varying = [numbered.columns[key].tolist() for key in keys]
    rows = zip(
        numbered.template.tolist(), numbered.rank.tolist(), numbered.host.tolist(), numbered.start_ns.tolist(),
        numbered.end_ns.tolist(), numbered.trace.tolist(), numbered.value.tolist(), event_seq.tolist(), strict=True,
    )  # fmt: skip
    for row, (index, rank, host, start_ns, end_ns, trace, value, seq) in enumerate(rows):
        template = numbered.templates[index]
        attributes: dict[str, AttributeValue] = {**template.attributes}
        attributes |= {key: column[row] for key, column in zip(keys, varying, strict=True) if column[row] != ABSENT}
        attributes |= of_rank[rank] if rank >= 0 else {}
        attributes[semconv.EVENT_SEQ] = seq
        name = sender.layout.hosts[host]
        match template.signal:
            case "sample":
                yield host, Sample(template.name, start_ns, value, attributes, template.unit)
            case "point":
                yield host, Point(template.name, start_ns, attributes)
            case "span":
                prefix, number = name, seq
                if trace >= 0:
                    prefix, number = sender.layout.comms[trace].id, attributes[semconv.NCCL_SEQ]
                trace_id = bytes.fromhex(f"{trace_prefix(sender.layout.job_id, prefix)}{number:016d}")
                span_id = bytes.fromhex(f"{host + 1:04d}{seq:012d}")
                yield (
                    host,
                    Span(template.name, start_ns, 0 if end_ns == OPEN else end_ns, attributes, trace_id, span_id),
                )
