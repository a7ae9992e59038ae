"""Records of the kernel's ring buffer to dataclasses; the fields are those of `struct record` in bpf/record.c."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ingero_probes.functions import FUNCTIONS, Function

RECORD: Final = struct.Struct("<QQIIHHiQQqqiiiiiI128s")
_WINDOW: Final = struct.Struct("<QQQQ")
_OFF_CPU: Final = struct.Struct("<QIII16s16s")
_NO_NUMBER: Final = 2**64 - 1
_CALL, _OFF, _EXIT, _MARK = range(4)
_HAS_WINDOW, _UNFINISHED = 1, 2
STATES: Final = ("running", "runqueue", "blocked", "disk", "stopped")


@dataclass(frozen=True, slots=True)
class Window:
    """What a thread did since its previous collective entry, in ns; `sync_ns` is not in the other three."""

    cpu_ns: int
    blocked_ns: int
    runq_ns: int
    sync_ns: int


@dataclass(frozen=True, slots=True)
class Call:
    """One traced call. Times are CLOCK_MONOTONIC; `end_ns` is 0 while the call runs.

    `comm` is an address in that process. `made` is the communicator that an init or split made, or the stream.
    `number` is the call's number on its communicator (None: not counted); of a split, its ordinal. `op` is the
    reduction, the copy kind or the color of a split; `peer` the peer, the root or the key. `unique_id` is that of an
    init.
    """

    function: Function
    start_ns: int
    end_ns: int
    pid: int
    tid: int
    result: int
    comm: int
    number: int | None
    count: int
    made: int
    datatype: int
    op: int
    peer: int
    rank: int
    nranks: int
    window: Window | None
    unique_id: bytes
    unfinished: bool


@dataclass(frozen=True, slots=True)
class OffCpu:
    """A thread was off the CPU from `start_ns` to `end_ns`; it could have run from `wake_ns` on.

    `state` says why it left. `next_*` took the CPU; `before_*` had it until the thread came back. Pid 0 is nobody.
    """

    start_ns: int
    wake_ns: int
    end_ns: int
    pid: int
    tid: int
    state: str
    next_pid: int
    next_comm: str
    before_pid: int
    before_comm: str


@dataclass(frozen=True, slots=True)
class Exit:
    """A traced process ended."""

    pid: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A process said which step begins."""

    pid: int
    tid: int
    time_ns: int
    step: int


Record = Call | OffCpu | Exit | Mark


def decode(data: bytes) -> Record:
    """One record of the ring buffer."""
    (start_ns, end_ns, pid, tid, kind, function, result, comm, number, count, made, datatype, op, peer, rank, nranks,
     flags, payload) = RECORD.unpack(data)  # fmt: skip
    if kind == _OFF:
        wake_ns, state, next_pid, before_pid, next_comm, before_comm = _OFF_CPU.unpack_from(payload)
        return OffCpu(
            start_ns, wake_ns, end_ns, pid, tid, STATES[state], next_pid, _text(next_comm), before_pid,
            _text(before_comm),
        )  # fmt: skip
    if kind == _EXIT:
        return Exit(pid, end_ns)
    if kind == _MARK:
        return Mark(pid, tid, start_ns, number)
    assert kind == _CALL
    called = FUNCTIONS[function]
    return Call(
        called, start_ns, end_ns, pid, tid, result, comm, None if number == _NO_NUMBER else number, count, made,
        datatype, op, peer, rank, nranks,
        Window(*_WINDOW.unpack_from(payload)) if flags & _HAS_WINDOW else None,
        payload if called.kind == "init" else b"",
        bool(flags & _UNFINISHED),
    )  # fmt: skip


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")
