"""What an importer hands over: the facts of one file and its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import pyarrow as pa

from ingero_mcp import semconv
from ingero_mcp.errors import ConfigError

_MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Names:
    """What the person who imports a file says about it, where the file does not say it itself.

    Raises ConfigError for a name that cannot be one.
    """

    node: str = semconv.UNKNOWN
    cluster: str = semconv.UNKNOWN

    def __post_init__(self) -> None:
        for what, name in (("node", self.node), ("cluster", self.cluster)):
            if not name or len(name) > _MAX_NAME or not name.isprintable():
                raise ConfigError(f"the name of a {what} must be 1 to {_MAX_NAME} printable characters")
        if ":" in self.node:
            raise ConfigError(f"node name {self.node!r} holds a colon, which divides node and number in an event's id")


@dataclass(frozen=True, slots=True)
class Import:
    """One file, read and checked completely: whatever can be wrong with it was raised before this existed.

    `digest` identifies the content and nothing else (no path, no time, no given name): a store that remembers
    (`digest`, number of the batch) recognises a second import of the same file. `ranks` and `steps` count
    what the file records, `world_size` is the size of the job (None where the file does not say).
    `warnings` say what the reader of the events must know and cannot see in them. `batches` can be read once.

    `context` holds what else the file knew, for `Store.append_context`; `context_rows` counts it by the view that
    shows it.
    """

    kind: str
    digest: str
    rows: int
    ranks: int
    steps: int
    world_size: int | None
    warnings: tuple[str, ...]
    batches: Iterator[pa.RecordBatch]
    context: Iterator[pa.RecordBatch] = field(default_factory=lambda: iter(()))
    context_rows: Mapping[str, int] = field(default_factory=dict)


def batch_key(digest: str, number: int, *, context: bool = False) -> bytes:
    """By which a store recognises a batch of an import: `digest` of the file, number of the batch from 0."""
    what = f"{digest}/context" if context else digest
    return blake2b(f"import/{what}/{number}".encode(), digest_size=16).digest()
