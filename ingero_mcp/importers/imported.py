"""What an importer hands over: the facts of one file and its events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Import:
    """One file, read and checked completely: whatever can be wrong with it was raised before this existed.

    `digest` identifies the content and nothing else (no path, no time): a store that remembers
    (`digest`, number of the batch) recognises a second import of the same file. `ranks` and `steps` count
    what the file records, `world_size` is the size of the job (None where the file does not say).
    `warnings` say what the reader of the events must know and cannot see in them. `batches` can be read once.
    """

    kind: str
    digest: str
    rows: int
    ranks: int
    steps: int
    world_size: int | None
    warnings: tuple[str, ...]
    batches: Iterator[pa.RecordBatch]
