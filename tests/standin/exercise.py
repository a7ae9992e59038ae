"""Three ranks that call the stand-in libraries through ctypes, one scenario per run: `python exercise.py FOLDER NAME`.

Apart from the training job, since that has one shape of step; here the results of every call are checked."""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

RANKS = 3
INVALID_ARGUMENT, INVALID_USAGE = 4, 5
FLOAT32, FLOAT16 = 7, 6
SUM, PROD, MAX, MIN, AVG = range(5)


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_ubyte * 128),)


class Buffer:
    """Floats that the libraries can see; device memory is the process's own here."""

    def __init__(self, values: Sequence[float]) -> None:
        self.floats = (ctypes.c_float * len(values))(*values)

    @property
    def address(self) -> ctypes.c_void_p:
        return ctypes.cast(self.floats, ctypes.c_void_p)

    @property
    def values(self) -> list[float]:
        return list(self.floats)


class Rank:
    """One rank in its process. `call` names a function of either library and insists that it succeeds."""

    def __init__(self, folder: Path, rank: int, inbox: int, outboxes: list[int]) -> None:
        self.rank, self._inbox, self._outboxes = rank, inbox, outboxes
        self._cuda = ctypes.CDLL(str(folder / "libcudart.so.12"), mode=ctypes.RTLD_GLOBAL)
        self._nccl = ctypes.CDLL(str(folder / "libnccl.so.2"))

    def result(self, name: str, *arguments: object) -> int:
        library = self._nccl if name.startswith("nccl") else self._cuda
        return int(getattr(library, name)(*(self._plain(argument) for argument in arguments)))

    @staticmethod
    def _plain(argument: object) -> object:
        if isinstance(argument, Buffer):
            return argument.address
        return ctypes.c_size_t(argument) if isinstance(argument, int) and argument > 16 else argument

    def call(self, name: str, *arguments: object) -> None:
        result = self.result(name, *arguments)
        assert result == 0, f"{name} returned {result}"

    def new(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """A handle that the function writes through its first argument."""
        handle = ctypes.c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def communicator(self) -> ctypes.c_void_p:
        """Of all ranks; the id goes from rank 0 to the others through pipes."""
        unique = UniqueId()
        if self.rank == 0:
            self.call("ncclGetUniqueId", ctypes.byref(unique))
            for outbox in self._outboxes:
                os.write(outbox, bytes(unique))
        else:
            unique = UniqueId.from_buffer_copy(os.read(self._inbox, 128))
        return self.new("ncclCommInitRank", RANKS, unique, self.rank)


def collectives(me: Rank) -> None:
    comm, stream = me.communicator(), me.new("cudaStreamCreate")
    mine = Buffer([float(10 * me.rank + part) for part in range(RANKS)])
    everybody = [[float(10 * rank + part) for part in range(RANKS)] for rank in range(RANKS)]
    columns = [list(column) for column in zip(*everybody, strict=True)]

    def check(name: str, expected: list[float] | None, *arguments: object) -> None:
        into = Buffer([-1.0] * (RANKS * RANKS))
        me.call(name, mine, into, *arguments, comm, stream)
        me.call("cudaStreamSynchronize", stream)
        expected = expected or []
        assert into.values[: len(expected)] == expected, (name, into.values)
        assert into.values[len(expected) :] == [-1.0] * (RANKS * RANKS - len(expected)), (name, into.values)

    check("ncclAllReduce", [sum(column) for column in columns], RANKS, FLOAT32, SUM)
    check("ncclAllReduce", [column[0] * column[1] * column[2] for column in columns], RANKS, FLOAT32, PROD)
    check("ncclAllReduce", [max(column) for column in columns], RANKS, FLOAT32, MAX)
    check("ncclAllReduce", [min(column) for column in columns], RANKS, FLOAT32, MIN)
    check("ncclAllReduce", [sum(column) / RANKS for column in columns], RANKS, FLOAT32, AVG)
    check("ncclReduce", [sum(c) for c in columns] if me.rank == 1 else None, RANKS, FLOAT32, SUM, 1)
    check("ncclBroadcast", everybody[2], RANKS, FLOAT32, 2)
    check("ncclReduceScatter", [sum(columns[me.rank])], 1, FLOAT32, SUM)
    check("ncclAllGather", [value for row in everybody for value in row], RANKS, FLOAT32)
    check("ncclAlltoAll", columns[me.rank], 1, FLOAT32)
    in_place = Buffer(mine.values)
    me.call("ncclBcast", in_place, RANKS, FLOAT32, 1, comm, stream)
    me.call("cudaDeviceSynchronize")
    assert in_place.values == everybody[1]
    me.call("ncclCommDestroy", comm)


def reuse(me: Rank) -> None:
    """Destroyed and made again: the same address comes back, with nothing of the one before."""
    seen = set()
    for value in range(4):
        comm = me.communicator()
        seen.add(comm.value)
        buffer = Buffer([float(value + me.rank)])
        me.call("ncclAllReduce", buffer, buffer, 1, FLOAT32, SUM, comm, None)
        me.call("cudaDeviceSynchronize")
        assert buffer.values == [3.0 * value + 3]
        me.call("ncclCommDestroy", comm)
    assert len(seen) < 4, "no address was used again"


def interleaved(me: Rank) -> None:
    """Two communicators on two streams, which the ranks enqueue in different orders; a third made by a split."""
    comms = [me.communicator(), me.communicator()]
    streams = [me.new("cudaStreamCreate"), me.new("cudaStreamCreate")]
    buffers = [Buffer([1.0 + me.rank]), Buffer([10.0 + me.rank])]
    for _ in range(20):
        for which in (0, 1) if me.rank % 2 else (1, 0):
            me.call("ncclAllReduce", buffers[which], buffers[which], 1, FLOAT32, MAX, comms[which], streams[which])
    me.call("cudaDeviceSynchronize")
    assert [buffer.values for buffer in buffers] == [[3.0], [12.0]]

    color, key = (-1, 0) if me.rank == 1 else (7, -me.rank)
    child = ctypes.c_void_p()
    me.call("ncclCommSplit", comms[0], color, key, ctypes.byref(child), None)
    assert bool(child) == (me.rank != 1)
    if child:
        place, size = ctypes.c_int(), ctypes.c_int()
        me.call("ncclCommUserRank", child, ctypes.byref(place))
        me.call("ncclCommCount", child, ctypes.byref(size))
        assert (place.value, size.value) == (0 if me.rank == 2 else 1, 2)
        me.call("ncclAllReduce", buffers[0], buffers[0], 1, FLOAT32, SUM, child, streams[0])
        me.call("cudaStreamSynchronize", streams[0])
        assert buffers[0].values == [6.0]


def groups(me: Rank) -> None:
    """All to all by send and receive in one group; nothing is enqueued before its end; one spans two communicators."""
    comm, other, stream = me.communicator(), me.communicator(), me.new("cudaStreamCreate")
    size = 20_000  # several parts per message
    mine = Buffer([float(me.rank)] * size)
    got = [Buffer([-1.0] * size) for _ in range(RANKS)]
    total = Buffer([1.0])
    me.call("ncclGroupStart")
    for peer in range(RANKS):
        me.call("ncclSend", mine, size, FLOAT32, peer, comm, stream)
        me.call("ncclRecv", got[peer], size, FLOAT32, peer, comm, stream)
    me.call("ncclAllReduce", total, total, 1, FLOAT32, SUM, other, None)
    me.call("cudaDeviceSynchronize")
    assert total.values == [1.0]
    me.call("ncclGroupEnd")
    me.call("cudaDeviceSynchronize")
    assert total.values == [3.0]
    assert [buffer.values for buffer in got] == [[float(rank)] * size for rank in range(RANKS)]


def refused(me: Rank) -> None:
    comm, buffer = me.communicator(), Buffer([0.0])
    assert me.result("ncclGroupEnd") == INVALID_USAGE
    assert me.result("ncclAllReduce", buffer, buffer, 1, FLOAT32, SUM, None, None) == INVALID_ARGUMENT
    assert me.result("ncclAllReduce", buffer, buffer, 1, FLOAT16, SUM, comm, None) == INVALID_ARGUMENT
    assert me.result("ncclBroadcast", buffer, buffer, 1, FLOAT32, RANKS, comm, None) == INVALID_ARGUMENT
    assert me.result("ncclCommInitRank", ctypes.byref(comm), RANKS, UniqueId(), 0) == INVALID_ARGUMENT


def abort(me: Rank) -> None:
    """Rank 0 never comes; the others get rid of their collective and go on."""
    comm, buffer = me.communicator(), Buffer([0.0])
    if me.rank:
        me.call("ncclAllReduce", buffer, buffer, 1, FLOAT32, SUM, comm, None)
    me.call("ncclCommAbort", comm)
    me.call("cudaDeviceSynchronize")


def mismatch(me: Rank) -> None:
    """Ranks that disagree are told so, not left hanging; this ends the process."""
    comm, buffer = me.communicator(), Buffer([0.0] * 2)
    me.call("ncclAllReduce", buffer, buffer, 1 + me.rank % 2, FLOAT32, SUM, comm, None)
    me.call("cudaDeviceSynchronize")


SCENARIOS: dict[str, Callable[[Rank], None]] = {
    scenario.__name__: scenario for scenario in (collectives, reuse, interleaved, groups, refused, abort, mismatch)
}


def main(folder: str, scenario: str) -> int:
    pipes = [os.pipe() for _ in range(RANKS)]
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            try:
                SCENARIOS[scenario](Rank(Path(folder), rank, pipes[rank][0], [end for _, end in pipes[1:]]))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    codes = array("i", (os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
    print(f"{scenario}: {list(codes)}")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
