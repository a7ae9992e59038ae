"""What a trace says of one collective, in whichever of its events: kernel, annotation or the operator on the host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ingero_mcp.importers.kineto.columns import Thread
from ingero_mcp.importers.kineto.groups import MOST_RANKS, Group, Groups
from ingero_mcp.importers.kineto.units import integer

PARAM_COMMS: Final = "record_param_comms"
ANNOTATION: Final = "nccl:"

_OPERATOR: Final = "c10d::"
_MOST_ELEMENTS: Final = 1 << 50
_PAIR: Final = re.compile(r"nccl:(send|recv) ([0-9]{1,7})(?:->|<-)([0-9]{1,7})")


@dataclass(frozen=True, slots=True)
class Said:
    """What the arguments of one event say of a collective; None and "" for what they do not.

    `full` is true where they name it, as they do since PyTorch 2.2. `size` is that of the group, `seq` PyTorch's number
    of the collective in it. `source` and `destination` are global ranks, `pair` is (own rank, peer) in the group.
    """

    full: bool = False
    collective: str = ""
    in_elements: int | None = None
    out_elements: int | None = None
    dtype: str = ""
    group: Group | None = None
    size: int | None = None
    seq: int | None = None
    source: int | None = None
    destination: int | None = None
    pair: tuple[int, int] | None = None


NOTHING: Final = Said()


@dataclass(frozen=True, slots=True)
class Record:
    """One event of a collective. `thread` is known on the host, `stream` on the GPU.

    `external` links the events of one operator, `correlation` a kernel and the call that launched it.
    """

    name: str
    start_ns: int
    duration_ns: int | None
    said: Said
    thread: Thread | None = None
    stream: int | None = None
    external: int | None = None
    correlation: int | None = None


def is_of_collective(name: str) -> bool:
    """Whether an event on the host that is called so belongs to a collective."""
    return name == PARAM_COMMS or name.startswith((ANNOTATION, _OPERATOR))


def said(name: str, args: Mapping[str, Any], groups: Groups) -> Said:
    """Read the arguments of an event. Raises ValueError for more process groups than are read."""
    collective = args.get("Collective name")
    group = groups.of(args)
    if isinstance(collective, str) and collective:
        dtype = args.get("dtype")
        return Said(
            full=True,
            collective=collective[:100],
            in_elements=integer(args.get("In msg nelems"), 0, _MOST_ELEMENTS),
            out_elements=integer(args.get("Out msg nelems"), 0, _MOST_ELEMENTS),
            dtype=dtype[:40] if isinstance(dtype, str) else "",
            group=group,
            size=group.size if group else integer(args.get("Group size"), 1, MOST_RANKS),
            seq=integer(args.get("Seq")),
            source=integer(args.get("Src Rank"), 0, MOST_RANKS),
            destination=integer(args.get("Dst Rank"), 0, MOST_RANKS),
        )
    if name.startswith(ANNOTATION):
        match = _PAIR.match(name)
        elements, dtype = _first_input(args)
        return Said(
            collective=name[:100],
            in_elements=elements,
            dtype=dtype,
            group=group,
            size=group.size if group else None,
            pair=(int(match[2]), int(match[3])) if match else None,
        )
    if name.startswith(_OPERATOR):
        return Said(collective=name[:100])
    return NOTHING


def _first_input(args: Mapping[str, Any]) -> tuple[int | None, str]:
    # Before PyTorch named collectives, the annotation had the shape and the type of their input.
    shapes, types = args.get("Input Dims"), args.get("Input type")
    if not (isinstance(shapes, list) and shapes and isinstance(shapes[0], list) and shapes[0]):
        return None, ""
    elements = 1
    for size in shapes[0][:16]:
        length = integer(size, 0, _MOST_ELEMENTS)
        if length is None or elements * length > _MOST_ELEMENTS:
            return None, ""
        elements *= length
    dtype = types[0] if isinstance(types, list) and types else ""
    return elements, dtype[:40] if isinstance(dtype, str) else ""
