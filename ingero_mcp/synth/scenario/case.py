"""A case: the events of a scenario in one view, and what is planted in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ingero_mcp.events import Event, Resource
from ingero_mcp.synth.scenario import arrow, nouns
from ingero_mcp.synth.scenario.block import Block
from ingero_mcp.synth.scenario.conditions import numbers
from ingero_mcp.synth.scenario.truth import Truth
from ingero_mcp.synth.scenario.who import Sender


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The events of one job."""

    sender: Sender
    recorded: Block


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One scenario in one view. `recordings` holds the job that the truth is about, then others in its cluster."""

    truth: Truth
    recordings: tuple[Recording, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as the store holds them, in time order per job."""
        for one in self.recordings:
            yield from arrow.batches(one.recorded, numbers(one.recorded), one.sender)

    def events(self) -> Iterator[tuple[Resource, Event]]:
        """The same events as the nouns that a program would send, each with its resource."""
        for one in self.recordings:
            resources = [one.sender.resource(host) for host in range(len(one.sender.layout.hosts))]
            for host, event in nouns.events(one.recorded, numbers(one.recorded), one.sender):
                yield resources[host], event

    @property
    def rows(self) -> int:
        """How many events there are."""
        return sum(len(one.recorded) for one in self.recordings)
