"""Numbers of operations: what Inspector counts, made into one number per channel that is equal on all ranks.

NCCL counts collectives per communicator and function: the fifth all-reduce and the fifth all-gather of one
communicator are both number 4. So each function of a communicator is a channel of its own here, with its own
`comm_id`: 16 hex digits, of which the last 14 are the hash as Inspector writes it (it cuts it to 14) and the first
two tell the function; they are 00 for all-reduce. Sends and receives share a channel.

Inspector counts sends and receives of a process as they come, whoever the peer is. What both ends can count is the
k-th between the two, which is known if none is missing in the log.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingero_mcp.importers.inspector.record import Call

NAMELESS: Final = "Invalid"
"""What Inspector writes for any function of NCCL that it does not know: its numbers mean nothing."""

_MAX_CHANNELS: Final = 50_000
_MASK: Final = (1 << 64) - 1
_TAG_BITS: Final = 56
_P2P_TAG: Final = 0x10
_TAGS: Final = {
    "AllReduce": 0x00,
    "AllGather": 0x01,
    "ReduceScatter": 0x02,
    "Broadcast": 0x03,
    "Reduce": 0x04,
    "All2All": 0x05,
    "AlltoAll": 0x05,
    "AllGatherV": 0x06,
    "SendRecv": 0x07,
    "Gather": 0x08,
    "Scatter": 0x09,
    NAMELESS: 0x0F,
}

_Key = tuple[str, int, int, int, str]  # host, pid, hash, rank in the communicator, function ("" for sends and receives)


def comm_id(call: Call) -> str:
    """The channel of a call as 16 hex digits, equal on all ranks."""
    if call.peer is not None:
        tag = _P2P_TAG
    elif call.function in _TAGS:
        tag = _TAGS[call.function]
    else:
        tag = 0x80 | sum(call.function.encode()) & 0x7F
    return format((call.context.communicator.hash ^ tag << _TAG_BITS) & _MASK, "016x")


@dataclass(slots=True)
class Channels:
    """The numbers of a log's calls: `add` them all, `settle`, then ask.

    `missing` counts collectives between the first and the last of their channel that are not in the log,
    `repeated` calls in channels whose numbers repeat, `unpaired` sends and receives that cannot be counted.
    """

    missing: int = 0
    repeated: int = 0
    unpaired: int = 0
    _numbers: dict[_Key, array[int]] = field(default_factory=dict)
    _pairs: dict[_Key, array[int]] = field(default_factory=dict)
    _pair_ids: dict[tuple[str, int], int] = field(default_factory=dict)
    _useless: set[_Key] = field(default_factory=set)
    _counts: dict[_Key, npt.NDArray[np.int64]] = field(default_factory=dict)

    def add(self, call: Call) -> None:
        """Take note of a call; raises ValueError where there are more channels than a process can have."""
        key = _key(call)
        numbers = self._numbers.get(key)
        if numbers is None:
            if len(self._numbers) == _MAX_CHANNELS:
                raise ValueError(f"holds more than {_MAX_CHANNELS} communicators and functions of them")
            numbers = self._numbers[key] = array("q")
        numbers.append(call.seq)
        if call.peer is not None:
            pair = self._pair_ids.setdefault((call.function, call.peer), len(self._pair_ids))
            self._pairs.setdefault(key, array("q")).append(pair)

    def settle(self) -> None:
        """Decide which numbers can be used."""
        for key, listed in self._numbers.items():
            numbers = np.frombuffer(listed, np.int64)
            if key in self._pairs:
                self._settle_pairs(key, numbers, np.frombuffer(self._pairs[key], np.int64))
            else:
                self._settle_collectives(key, numbers)

    def seq(self, call: Call) -> int | None:
        """The number of a call in its channel from 0; None where the log does not tell it."""
        key = _key(call)
        if call.peer is None:
            return None if key in self._useless else call.seq
        counts = self._counts.get(key)
        return None if counts is None else int(counts[call.seq - 1])

    def _settle_collectives(self, key: _Key, numbers: npt.NDArray[np.int64]) -> None:
        distinct = len(np.unique(numbers))
        if key[-1] == NAMELESS:
            self._useless.add(key)
        elif distinct < len(numbers):
            self._useless.add(key)
            self.repeated += len(numbers)
        else:
            self.missing += int(numbers.max() - numbers.min()) + 1 - distinct

    def _settle_pairs(self, key: _Key, numbers: npt.NDArray[np.int64], pairs: npt.NDArray[np.int64]) -> None:
        order = np.argsort(numbers, kind="stable")
        if not np.array_equal(numbers[order], np.arange(1, len(numbers) + 1)):
            self.unpaired += len(numbers)
            return
        self._counts[key] = _nth_of_its_kind(pairs[order])


def _key(call: Call) -> _Key:
    context = call.context
    function = call.function if call.peer is None else ""
    return (context.host, context.pid, context.communicator.hash, context.communicator.rank, function)


def _nth_of_its_kind(kinds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """For each element how many equal ones come before it."""
    order = np.argsort(kinds, kind="stable")
    sorted_kinds = kinds[order]
    first = np.concatenate([[True], sorted_kinds[1:] != sorted_kinds[:-1]])
    begin = np.maximum.accumulate(np.where(first, np.arange(len(kinds)), 0))
    counts = np.empty(len(kinds), np.int64)
    counts[order] = np.arange(len(kinds)) - begin
    return counts
