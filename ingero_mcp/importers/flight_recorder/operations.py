"""What PyTorch calls an operation, and what it is for NCCL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

SEND: Final = "ncclSend"
RECV: Final = "ncclRecv"

_MAX_NAME: Final = 64
# Spelled in several ways over the years: _all_gather_base, ALLGATHER_coalesced, all_gather_into_tensor_coalesced.
# Compared in lower case without underscores; the first that begins the name is it.
_BEGINNINGS: Final = (
    ("allreduce", "ncclAllReduce"),
    ("barrier", "ncclAllReduce"),
    ("allgather", "ncclAllGather"),
    ("reducescatter", "ncclReduceScatter"),
    ("alltoall", "ncclAlltoAll"),
    ("broadcast", "ncclBroadcast"),
    ("reduce", "ncclReduce"),
    ("gather", "ncclGather"),
    ("scatter", "ncclScatter"),
)
_PEERS: Final = re.compile(r"(send|recv) ?(\d{1,9})(->|<-)(\d{1,9})")
_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]+")

# (bytes, name as NCCL has it) of an element.
_DATATYPES: Final[dict[str, tuple[int, str]]] = {
    "Byte": (1, "uint8"),
    "Char": (1, "int8"),
    "Bool": (1, "bool"),
    "Short": (2, "int16"),
    "UInt16": (2, "uint16"),
    "Int": (4, "int32"),
    "UInt32": (4, "uint32"),
    "Long": (8, "int64"),
    "UInt64": (8, "uint64"),
    "Half": (2, "float16"),
    "BFloat16": (2, "bfloat16"),
    "Float": (4, "float32"),
    "Double": (8, "float64"),
    "ComplexHalf": (4, "complex32"),
    "ComplexFloat": (8, "complex64"),
    "ComplexDouble": (16, "complex128"),
    "Float8_e4m3fn": (1, "float8e4m3"),
    "Float8_e5m2": (1, "float8e5m2"),
}


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: `event` is the name of its events, `name` the one PyTorch has for it.

    `own` and `peer` are places in the process group, of a send or receive whose name says them.
    """

    event: str
    name: str
    own: int | None = None
    peer: int | None = None

    @property
    def is_p2p(self) -> bool:
        return self.event in (SEND, RECV)

    @property
    def is_known(self) -> bool:
        return not self.event.startswith("nccl.")


@lru_cache(maxsize=4096)
def operation_of(profiling_name: str) -> Operation:
    """The operation of a profiling name: `nccl:_all_gather_base`, `nccl:send 0->3`, `nccl:recv 3<-0`."""
    name = profiling_name.rpartition(":")[2].strip()
    first = name.split(" ", 1)[0]
    if first in ("send", "recv"):
        found = _PEERS.fullmatch(name)
        own, peer = (int(found[2]), int(found[4])) if found else (None, None)
        return Operation(SEND if first == "send" else RECV, first, own, peer)
    plain = first.lower().replace("_", "")
    known = next((event for beginning, event in _BEGINNINGS if plain.startswith(beginning)), None)
    kept = _ODD.sub("_", name)[:_MAX_NAME] or "unnamed"
    return Operation(known or f"nccl.{kept}", kept)


def datatype(name: str) -> tuple[int | None, str]:
    """The size of an element in bytes (None where it is not known) and NCCL's name of a datatype of PyTorch."""
    size, known = _DATATYPES.get(name, (None, _ODD.sub("_", name)[:_MAX_NAME]))
    return size, known
