"""For each layer a setting in which it is seen to be needed: those that stop the same things are left out already.

Layers overlap on purpose, so to leave out one alone may change nothing. What is asked of each is this: without the
layers that overlap, and with this one, the fuzzer finds nothing of the kind; without this one too, it does.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.sqlguard.fuzz.layers import Layer, Layers, without
from tests.sqlguard.fuzz.oracle import Kind


@dataclass(frozen=True, slots=True)
class Overlap:
    """A layer, those that stop the same, why they do, and what gets through when all of them are gone."""

    layer: Layer
    others: tuple[Layer, ...]
    why: str
    kinds: frozenset[Kind]

    @property
    def with_layer(self) -> Layers:
        return without(*self.others)

    @property
    def without_layer(self) -> Layers:
        return without(self.layer, *self.others)


_READS = frozenset({Kind.LEAK})
_OPINIONS = (Layer.DUCKDB, Layer.SQLGLOT, Layer.RENDERED)
_ENGINE = "both opinions refuse what is no query, and the rendering cannot write it; the engine is alone without them"

OVERLAPS: tuple[Overlap, ...] = (
    Overlap(Layer.DUCKDB, (Layer.SQLGLOT,), "the two opinions know the same lists", _READS),
    Overlap(Layer.SQLGLOT, (Layer.DUCKDB,), "the two opinions know the same lists", _READS),
    Overlap(
        Layer.TEXT,
        (Layer.DUCKDB, Layer.RENDERED),
        "unseen characters mislead sqlglot only, and only in the raw text: DuckDB's tree and its rendering are plain",
        _READS,
    ),
    Overlap(
        Layer.RENDERED,
        (Layer.DUCKDB, Layer.TEXT),
        "what sqlglot misreads is refused for its characters, or seen in DuckDB's tree, or in the plain rendering",
        _READS,
    ),
    Overlap(
        Layer.GROWTH,
        (),
        "none: the engine's limits do not hold for these",
        frozenset({Kind.MEMORY, Kind.DEATH, Kind.STUCK}),
    ),
    Overlap(Layer.ONE_STATEMENT, _OPINIONS, _ENGINE, frozenset({Kind.CHANGE})),
    Overlap(Layer.READ_ONLY, _OPINIONS, _ENGINE, frozenset({Kind.CHANGE})),
    Overlap(Layer.LOCKED, _OPINIONS, _ENGINE, frozenset({Kind.FILE})),
)
