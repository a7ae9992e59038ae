"""The rules: each reads one kind of chain off what a node recorded. A rule more is a file more, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ingero_mcp.analysis.chains.chain import Chain, in_order
from ingero_mcp.analysis.chains.cuda_graphs import cuda_graphs
from ingero_mcp.analysis.chains.memory_given_back import memory_given_back
from ingero_mcp.analysis.chains.noisy_neighbour import noisy_neighbour
from ingero_mcp.analysis.chains.record import Record
from ingero_mcp.analysis.chains.retransmits import retransmits
from ingero_mcp.analysis.chains.single_events import single_events
from ingero_mcp.analysis.chains.tail_latency import tail_latency
from ingero_mcp.analysis.chains.throughput_drop import throughput_drop

Rule: TypeAlias = Callable[[Record], Iterator[Chain]]

RULES: Final[tuple[Rule, ...]] = (
    tail_latency,
    memory_given_back,
    throughput_drop,
    single_events,
    retransmits,
    noisy_neighbour,
    cuda_graphs,
)


def find_chains(record: Record) -> tuple[Chain, ...]:
    """What every rule finds, by severity and then by time."""
    return in_order([chain for rule in RULES for chain in rule(record)])
