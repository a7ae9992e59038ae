"""The entries of a recorder: one for every operation that its rank called."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ingero_mcp.importers.flight_recorder.fields import number, time_ns, words
from ingero_mcp.importers.flight_recorder.groups import Group, Groups
from ingero_mcp.importers.flight_recorder.operations import Operation, datatype, operation_of
from ingero_mcp.importers.flight_recorder.stacks import Stacks

COMPLETED: Final = "completed"

_STATES: Final = ("scheduled", "started", COMPLETED)
_COALESCED: Final = "coalesced"
_MAX_NAME: Final = 200
_MAX_TENSORS: Final = 4096
_MAX_COUNT: Final = 1 << 60
_NS_PER_MS: Final = 10**6
_MAX_MS: Final = 10**12


@dataclass(frozen=True, slots=True)
class Buffers:
    """The tensors at one side of an operation: elements, their datatype, bytes. None where it is not known."""

    count: int | None = None
    datatype: str | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation as it was recorded.

    `created_ns` is when it was called, `started_ns` and `completed_ns` are when the watchdog found that it had begun
    and ended on the GPU: later than the fact, and None if it did not find it. `gpu_ns` is the time between both
    events on the GPU, where it was measured. `numbers` are those of the latest collective of the group and of its
    latest send or receive; `seq` is the one that counts this operation.
    """

    group: Group
    operation: Operation
    is_p2p: bool
    numbers: tuple[int | None, int | None]
    seq: int | None
    state: str
    created_ns: int | None
    started_ns: int | None
    completed_ns: int | None
    gpu_ns: int | None
    input: Buffers
    output: Buffers
    stack_id: str | None
    said: Mapping[str, int | str | bool]

    @property
    def is_open(self) -> bool:
        return self.state != COMPLETED

    @property
    def duration_ns(self) -> int | None:
        """From the call to when the end was found."""
        if self.is_open or self.created_ns is None or self.completed_ns is None:
            return None
        return self.completed_ns - self.created_ns if self.completed_ns >= self.created_ns else None

    @property
    def content(self) -> tuple[object, ...]:
        """Everything but the members of the group, which other entries have too."""
        ends = (self.created_ns, self.started_ns, self.completed_ns, self.gpu_ns)
        buffers = (self.input.count, self.input.datatype, self.output.count, self.output.datatype)
        said = sorted(self.said.items())
        return (self.group.name, self.operation, self.numbers, self.state, ends, buffers, self.stack_id, said)

    @property
    def is_coalesced(self) -> bool:
        """Whether it stands for a batch of operations, which have entries of their own before it."""
        return self.operation.name == _COALESCED


def read_entries(listed: Iterable[Any], groups: Groups, stacks: Stacks, faults: Counter[str]) -> tuple[Entry, ...]:
    """Read the entries of a dump in order; what is no entry is counted in `faults` and left out."""
    found: list[Entry] = []
    for facts in listed:
        if isinstance(facts, dict) and isinstance(facts.get("profiling_name"), str):
            found.append(_read(facts, groups, stacks))
        else:
            faults["entries that are none (no profiling_name) were left out"] += 1
    _settle_batches(found)
    return tuple(found)


def _read(facts: Mapping[str, Any], groups: Groups, stacks: Stacks) -> Entry:
    operation = operation_of(words(facts["profiling_name"], _MAX_NAME))
    is_p2p = operation.is_p2p or (operation.name == _COALESCED and facts.get("is_p2p") is True)
    # The first recorders had one number for both.
    collective, p2p = (number(facts.get(key, facts.get("seq_id"))) for key in ("collective_seq_id", "p2p_seq_id"))
    started_ns, completed_ns = (time_ns(facts.get(f"time_discovered_{what}_ns")) for what in ("started", COMPLETED))
    return Entry(
        group=groups.of(facts),
        operation=operation,
        is_p2p=is_p2p,
        numbers=(collective, p2p),
        seq=p2p if is_p2p else collective,
        state=_state(facts, started_ns, completed_ns),
        created_ns=time_ns(facts.get("time_created_ns")),
        started_ns=started_ns,
        completed_ns=completed_ns,
        gpu_ns=_milliseconds(facts.get("duration_ms")),
        input=_buffers(facts, "input"),
        output=_buffers(facts, "output"),
        stack_id=stacks.add(facts.get("frames")),
        said=_said(facts),
    )


def _said(facts: Mapping[str, Any]) -> Mapping[str, int | str | bool]:
    """What is kept as it is, if it is what it should be."""
    said: dict[str, int | str | bool | None] = {key: number(facts.get(key)) for key in ("record_id", "op_id")}
    said["timeout_ms"] = number(facts.get("timeout_ms"))
    said["retired"] = facts["retired"] if isinstance(facts.get("retired"), bool) else None
    said["thread_name"] = words(facts.get("thread_name"), _MAX_NAME) or None
    if time_ns(facts.get("time_created_ns")) is None:
        said["time_created_ns"] = number(facts.get("time_created_ns"))
    return {key: value for key, value in said.items() if value is not None}


def _state(facts: Mapping[str, Any], started_ns: int | None, completed_ns: int | None) -> str:
    state = facts.get("state")
    if state in _STATES:
        return str(state)
    return COMPLETED if completed_ns else "started" if started_ns else "scheduled"


def _milliseconds(value: Any) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_MS:
        return round(value * _NS_PER_MS)
    return None


def _buffers(facts: Mapping[str, Any], side: Literal["input", "output"]) -> Buffers:
    sizes, types = facts.get(f"{side}_sizes"), facts.get(f"{side}_dtypes")
    names = [words(name, _MAX_NAME) for name in types[:_MAX_TENSORS]] if isinstance(types, list | tuple) else []
    known = [datatype(name) for name in names]
    # A batch has many tensors, but of one type or two.
    named = ",".join(dict.fromkeys(name for _, name in known))[:_MAX_NAME] or None
    counts = _counts(sizes)
    if counts is None:
        return Buffers(None, named)
    count, bytes_ = sum(counts), None
    if len(known) == len(counts) and all(size for size, _ in known):
        bytes_ = sum(one * (size or 0) for one, (size, _) in zip(counts, known, strict=True))
    return Buffers(
        count if count <= _MAX_COUNT else None, named, bytes_ if bytes_ is None or bytes_ <= _MAX_COUNT else None
    )


def _counts(sizes: Any) -> list[int] | None:
    """The elements of each tensor; None if there is no tensor, too many, or one has no proper shape."""
    if not isinstance(sizes, list | tuple) or not 0 < len(sizes) <= _MAX_TENSORS:
        return None
    counts = []
    for shape in sizes:
        if not isinstance(shape, list | tuple) or len(shape) > 64:
            return None
        lengths = [number(length, _MAX_COUNT) for length in shape]
        if None in lengths:
            return None
        counts.append(math.prod(length or 0 for length in lengths))
    return counts


def _settle_batches(entries: list[Entry]) -> None:
    """Give the operations of a batch the state of the batch.

    The recorder follows only the entry of the batch, which comes last; those of its operations stay scheduled for
    ever. They are the entries of the group right before it with the same two numbers: outside a batch every operation
    counts one of them up.
    """
    latest: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        run = latest.setdefault(entry.group.name, [])
        if entry.numbers == (None, None) or (run and entries[run[-1]].numbers != entry.numbers):
            run.clear()
        if not entry.is_coalesced:
            run.append(index)
            continue
        for member in run:
            if entries[member].is_open:
                entries[member] = replace(
                    entries[member],
                    state=entry.state,
                    started_ns=entry.started_ns,
                    completed_ns=entry.completed_ns,
                )
        if run:
            # Its operations carry the number, and a second row with it would be taken for one of them.
            entries[index] = replace(entry, seq=None)
        run.clear()
