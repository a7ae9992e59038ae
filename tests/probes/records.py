"""Records as the kernel side would send them, for the tests of what comes after it."""

from __future__ import annotations

from ingero_probes.decode import RECORD, decode
from ingero_probes.decode import Record as Record
from ingero_probes.functions import FUNCTIONS

CALL, OFF_CPU, EXIT, MARK = range(4)
HAS_WINDOW, UNFINISHED = 1, 2
NO_NUMBER = 2**64 - 1
MS = 1_000_000
FLOAT32 = 7
WORLD = bytes(range(128))


def raw(
    name: str = "ncclAllReduce",
    *,
    at: int = 0,
    lasts: int = MS,
    pid: int = 100,
    tid: int = 0,
    kind: int = CALL,
    result: int = 0,
    comm: int = 0,
    number: int = NO_NUMBER,
    count: int = 0,
    made: int = 0,
    datatype: int = FLOAT32,
    op: int = 0,
    peer: int = 0,
    rank: int = 0,
    nranks: int = 0,
    flags: int = 0,
    payload: bytes = b"",
) -> bytes:
    """The bytes of one record; `at` is when it began."""
    function = next(number for number, function in enumerate(FUNCTIONS) if function.name == name)
    return RECORD.pack(
        at, at + lasts, pid, tid or pid, kind, function, result, comm, number, count, made, datatype, op, peer, rank,
        nranks, flags, payload,
    )  # fmt: skip


def call(name: str, **fields: int | bytes) -> Record:
    """A call."""
    return decode(raw(name, **fields))  # type: ignore[arg-type]


def init(rank: int, nranks: int, address: int, unique_id: bytes = WORLD, **fields: int) -> Record:
    """A finished ncclCommInitRank."""
    return call("ncclCommInitRank", rank=rank, nranks=nranks, made=address, payload=unique_id, **fields)
