"""`ingero demo --out`: the story of the demo as files to try things on: three nodes, all of them, and a timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from ingero_mcp.cli.import_file import keep_clocks
from ingero_mcp.cli.written import written
from ingero_mcp.errors import ConfigError
from ingero_mcp.exported.asked import Asked
from ingero_mcp.exported.begun import begin
from ingero_mcp.otlp.decode import Decoder
from ingero_mcp.otlp.encode import encode_points, encode_samples, encode_spans
from ingero_mcp.otlp.records import Arrival
from ingero_mcp.otlp.signal import Signal
from ingero_mcp.store import open_store
from ingero_mcp.store.merging.merge import Part, merge
from ingero_mcp.synth import healthy
from ingero_mcp.synth.story import JOB, MS, RANKS_PER_NODE, Story
from ingero_mcp.tools.call import Call

ALL: Final = "all-nodes.duckdb"
TIMELINE: Final = "timeline.perfetto.json"
_HEALTHY_STEPS: Final = 60
_VITALS_NS: Final = 7_000 * MS

Sent = tuple[str, Signal, bytes]


def write_files(folder: Path, start_ns: int) -> dict[Path, int]:
    """Make the files in `folder`, with what happened from `start_ns` on; the events in each. Nothing is overwritten."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    stories = _by_node(start_ns)
    nodes = [folder / f"{node}.duckdb" for node in stories]
    everything, timeline = folder / ALL, folder / TIMELINE
    for path in (*nodes, everything, timeline):
        if path.exists():
            raise ConfigError(f"{path} exists already; name another folder, or one without the files of a demo")
    made: dict[Path, int] = {}
    for path, batches in zip(nodes, stories.values(), strict=True):
        with open_store(path) as store:
            made[path] = sum(store.append(batch).result().rows for batch in batches)
            keep_clocks(store)
    made[everything] = _merge(nodes, everything)
    with open_store(everything, read_only=True) as store, written(str(timeline)) as write:
        begun = begin(Call(store, None), Asked("perfetto"))
        for piece in begun.pieces:
            write(piece)
        made[timeline] = begun.rows
    return made


def _merge(nodes: list[Path], everything: Path) -> int:
    """The nodes in one file, and what they tell together: how far their clocks are apart."""
    merged = merge([Part(path) for path in nodes], everything)
    with open_store(everything) as store:
        keep_clocks(store)
    return merged.events


def _by_node(start_ns: int) -> dict[str, list[pa.RecordBatch]]:
    """What each node's daemon would have sent, as the server reads it."""
    decoder, arrival = Decoder(), Arrival(start_ns)
    batches: dict[str, list[pa.RecordBatch]] = {}
    for node, signal, body in (*_told(start_ns), *_vitals(start_ns)):
        batches.setdefault(node, []).append(decoder.decode(signal, body, arrival).batch)
    return batches


def _told(start_ns: int) -> Iterator[Sent]:
    story = Story(start_ns)
    for node, spans, points in story.tell():
        if spans:
            yield node, "traces", encode_spans(story.resource(node), spans)
        if points:
            yield node, "logs", encode_points(story.resource(node), points)
    spans = list(healthy.healthy_steps(start_ns, _HEALTHY_STEPS))
    yield healthy.NODE, "traces", encode_spans(healthy.resource(healthy.NODE, healthy.JOB), spans)


def _vitals(start_ns: int) -> Iterator[Sent]:
    ahead_ns = Story(start_ns).truth.offset_ns
    for node, job, offset_ns in (
        ("gpu-node-1", JOB, 0),
        ("gpu-node-2", JOB, ahead_ns),
        (healthy.NODE, healthy.JOB, 0),
    ):
        samples = healthy.vitals(node, RANKS_PER_NODE, start_ns, start_ns + _VITALS_NS)
        on_its_clock = [replace(sample, time_ns=sample.time_ns + offset_ns) for sample in samples]
        yield node, "metrics", encode_samples(healthy.resource(node, job), on_its_clock)
