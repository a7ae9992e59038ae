"""Call stacks of entries: each is kept once, under a number taken from its frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from ingero_mcp import semconv, views
from ingero_mcp.batches import batch
from ingero_mcp.importers.flight_recorder.fields import number, words

_MAX_FRAMES: Final = 256
_MAX_TEXT: Final = 300
_BATCH_ROWS: Final = 1000  # stores recognise batches by number: with another size they would not


class Stacks:
    """The stacks of one file."""

    def __init__(self) -> None:
        self._frames: dict[str, tuple[str, ...]] = {}
        self._seen: dict[tuple[int, ...], str] = {}
        self._texts: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frames: Any) -> str | None:
        """Keep the frames of an entry (innermost first) and return their number; None if there are none."""
        if not isinstance(frames, list | tuple) or not frames:
            return None
        frames = frames[:_MAX_FRAMES]
        # In a pickle the same frame is the same object, so that most stacks are met again without a look at them.
        seen = tuple(map(id, frames))
        if seen not in self._seen:
            texts = tuple(self._texts.setdefault(text, text) for text in map(_text, frames))
            stack_id = blake2b(json.dumps(texts).encode(), digest_size=8).hexdigest()
            self._frames[stack_id] = texts
            self._seen[seen] = stack_id
        return self._seen[seen]

    def batches(self, cluster: str, node: str) -> Iterator[pa.RecordBatch]:
        """The stacks as rows of context."""
        known = list(self._frames.items())
        for start in range(0, len(known), _BATCH_ROWS):
            part = known[start : start + _BATCH_ROWS]
            facts = [json.dumps({views.STACK.key("frames"): texts}, ensure_ascii=False) for _, texts in part]
            columns = {
                "cluster_id": cluster,
                "node_id": node,
                "metric_name": views.STACK.metric_name,
                "source": semconv.source_of(views.STACK.metric_name),
                "stack_id": [stack_id for stack_id, _ in part],
                "attrs_json": facts,
            }
            yield batch(columns, len(part))


def _text(frame: Any) -> str:
    """`function (file:line)`, as far as the frame says it."""
    if not isinstance(frame, dict):
        return words(frame, _MAX_TEXT) or "?"
    name, file, line = words(frame.get("name"), _MAX_TEXT), words(frame.get("filename"), _MAX_TEXT), frame.get("line")
    place = f"{file}:{line}" if file and number(line) else file
    return f"{name or '?'} ({place})" if place else name or "?"
