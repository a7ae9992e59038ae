"""Names: of collectives as NCCL, PyTorch and kernels spell them, and of the types of their elements."""

from __future__ import annotations

import re
from typing import Final

SEND: Final = "ncclSend"
RECV: Final = "ncclRecv"
SEND_RECV: Final = "ncclSendRecv"
ALL_TO_ALL: Final = "ncclAlltoAll"
UNKNOWN_KERNEL: Final = "ncclKernel"
"""A kernel that runs whatever it is told to, where nothing says what it was."""

# The first word found decides, so that the longer ones come first.
_OPERATIONS: Final = (
    ("alltoall", ALL_TO_ALL),
    ("allreduce", "ncclAllReduce"),
    ("barrier", "ncclAllReduce"),
    ("reducescatter", "ncclReduceScatter"),
    ("allgather", "ncclAllGather"),
    ("broadcast", "ncclBroadcast"),
    ("sendrecv", SEND_RECV),
    ("send", SEND),
    ("recv", RECV),
    ("scatter", "ncclScatter"),
    ("gather", "ncclGather"),
    ("reduce", "ncclReduce"),
)
_DATATYPES: Final = {
    "bfloat16": ("bfloat16", 2), "half": ("float16", 2), "float16": ("float16", 2), "float": ("float32", 4),
    "float32": ("float32", 4), "double": ("float64", 8), "float64": ("float64", 8), "int": ("int32", 4),
    "int32": ("int32", 4), "long": ("int64", 8), "longint": ("int64", 8), "int64": ("int64", 8),
    "byte": ("uint8", 1), "unsignedchar": ("uint8", 1), "uint8": ("uint8", 1), "bool": ("uint8", 1),
    "char": ("int8", 1), "signedchar": ("int8", 1), "int8": ("int8", 1), "uint32": ("uint32", 4),
    "uint64": ("uint64", 8), "float8e4m3fn": ("float8e4m3", 1), "float8e5m2": ("float8e5m2", 1),
}  # fmt: skip
_KERNEL: Final = re.compile(r"(?:void )?nccl\w*kernel", re.IGNORECASE)
_LETTERS: Final = re.compile(r"[^a-z]+")
_SIGNS: Final = re.compile(r"[^a-z0-9]+")
_BEGINNING: Final = 100


def is_nccl_kernel(name: str) -> bool:
    """Whether a CUDA kernel of this name moves data between GPUs for NCCL (or RCCL, which kept the names)."""
    return _KERNEL.match(name) is not None


def operation(name: str) -> str:
    """What a collective, its annotation or its kernel is called on the wire; empty where the name does not say."""
    words = _LETTERS.sub("", name[:_BEGINNING].partition("(")[0].lower())
    return next((wire for word, wire in _OPERATIONS if word in words), "")


def datatype(name: str) -> tuple[str, int]:
    """NCCL's name of an element type and the bytes of an element, 0 where they are not known."""
    known = _DATATYPES.get(_SIGNS.sub("", name.lower().removeprefix("c10::")))
    return known or (name[:32], 0)
