"""Blocks: events of one kind as columns, before they become Arrow batches or the nouns of events.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ingero_mcp.events import AttributeValue

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Signal = Literal["span", "sample", "point"]
ABSENT: Final = -1
OPEN: Final = -2
"""In place of the end of a span that had not ended."""


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """What many events have in common: their name and attributes."""

    signal: Signal
    name: str
    attributes: Mapping[str, AttributeValue]
    unit: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Events; one element per event. `template` is an index into `templates`, `host` into the hosts of the job.

    Times are true Unix nanoseconds until a clock is applied. `rank` is -1 for what belongs to a host. `end_ns` is OPEN
    for what had not ended, and equals `start_ns` for samples and points. `columns` are attributes that differ from
    event to event, by key; ABSENT where an event lacks one. `trace` numbers what belongs together, from 0.
    """

    templates: tuple[Template, ...]
    template: Int64s
    rank: Int64s
    host: Int64s
    start_ns: Int64s
    end_ns: Int64s
    trace: Int64s
    columns: dict[str, Int64s] = field(default_factory=dict)
    value: Floats = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.start_ns)

    def where(self, chosen: Any) -> Block:
        """The events of a mask or of an array of positions."""
        parts = {name: getattr(self, name)[chosen] for name in _PARTS}
        return replace(self, **parts, columns={key: column[chosen] for key, column in self.columns.items()})

    @property
    def seen_ns(self) -> Int64s:
        """When an event is complete: the order in which a probe sends them."""
        return np.maximum(self.start_ns, self.end_ns)


_PARTS: Final = ("template", "rank", "host", "start_ns", "end_ns", "trace", "value")
assert {*_PARTS, "templates", "columns"} == {part.name for part in fields(Block)}


def block(
    template: Template | tuple[Sequence[Template], Any],
    ranks: Any,
    hosts: Any,
    start_ns: Any,
    end_ns: Any = None,
    *,
    columns: Mapping[str, Any] | None = None,
    trace: Any = ABSENT,
    value: Any = 0.0,
) -> Block:
    """A block from arrays that broadcast to the shape of `start_ns`, and are flattened."""
    start = np.asarray(start_ns, np.int64)
    templates, index = ((template,), 0) if isinstance(template, Template) else template

    def flat(part: Any, kind: Any = np.int64) -> Any:
        return np.broadcast_to(np.asarray(part, kind), start.shape).reshape(-1)

    return Block(
        tuple(templates),
        flat(index),
        flat(ranks),
        flat(hosts),
        flat(start),
        flat(start if end_ns is None else end_ns),
        flat(trace),
        {key: flat(column) for key, column in (columns or {}).items()},
        flat(value, np.float64),
    )


def join(blocks: Sequence[Block]) -> Block:
    """All events of several blocks, in their order."""
    blocks = [one for one in blocks if len(one)]
    templates: dict[int, Template] = {}
    places: dict[int, int] = {}
    indices = []
    for one in blocks:
        for template in one.templates:
            places.setdefault(id(template), len(places))
            templates[id(template)] = template
        indices.append(np.array([places[id(template)] for template in one.templates], np.int64)[one.template])
    keys = sorted({key for one in blocks for key in one.columns})
    parts: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in blocks]) if blocks else np.zeros(0, np.int64)
        for name in _PARTS
        if name != "template"
    }
    columns = {
        key: np.concatenate([one.columns[key] if key in one.columns else np.full(len(one), ABSENT) for one in blocks])
        for key in keys
    }
    index = np.concatenate(indices) if indices else np.zeros(0, np.int64)
    return Block(tuple(templates.values()), index, columns=columns, **parts)
