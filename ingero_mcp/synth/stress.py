"""The stream of `ingero stress`: health samples of one node, some low, some that belong to a causal chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from ingero_mcp import semconv
from ingero_mcp.events import AttributeValue, Resource, Sample

LOW: Final = 0.40
"""A health score below this is low."""


@dataclass(frozen=True, slots=True)
class StressPlan:
    """What to generate: every `chain_every`-th sample carries a causal chain, every `low_every`-th is low."""

    cluster_id: str
    node_id: str
    events: int
    start_ns: int
    chain_every: int = 25
    low_every: int = 100
    seed: int = 0
    interval_ns: int = 1_000_000
    first_seq: int = 0

    def resource(self) -> Resource:
        """Who sends."""
        return Resource(
            {
                semconv.CLUSTER_ID: self.cluster_id,
                semconv.NODE_ID: self.node_id,
                semconv.SERVICE_NAME: "ingero-stress",
            }
        )

    def samples(self) -> Iterator[Sample]:
        """The samples in time order; the same plan gives the same samples."""
        random = Random(f"{self.seed}/{self.node_id}")
        for number in range(1, self.events + 1):
            attributes: dict[str, AttributeValue] = {semconv.EVENT_SEQ: self.first_seq + number}
            attributes |= self._chain(number)
            score = random.uniform(0.05, LOW - 0.01) if number % self.low_every == 0 else random.uniform(0.80, 0.99)
            yield Sample(
                name=semconv.HEALTH_SCORE,
                time_ns=self.start_ns + number * self.interval_ns,
                value=score,
                attributes=attributes,
                unit="1",
            )

    def _chain(self, number: int) -> dict[str, AttributeValue]:
        if number % self.chain_every:
            return {}
        return {
            semconv.CAUSAL_CHAIN_ID: f"{self.node_id}:chain-{self.seed}-{self.first_seq + number}",
            "ingero.chain.severity": ("LOW", "MEDIUM", "HIGH")[number // self.chain_every % 3],
            "ingero.chain.depth": 3 + number % 4,
        }


@dataclass(frozen=True, slots=True)
class Planted:
    """What a stream of samples really held."""

    events: int = 0
    chains: int = 0
    low: int = 0

    def plus(self, sample: Sample) -> Planted:
        """The count with one more sample in it."""
        return Planted(
            self.events + 1,
            self.chains + (semconv.CAUSAL_CHAIN_ID in sample.attributes),
            self.low + (sample.value < LOW),
        )
