"""The functions that are traced: their names, what kind of call each is, and their numbers in the kernel's records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ingero_mcp import semconv

Kind = Literal["collective", "p2p", "init", "split", "destroy", "other", "wait", "memory", "marker"]


@dataclass(frozen=True, slots=True)
class Function:
    """A traced function; the kernel side has a program `enter_<name>` for it.

    `twins` are other symbols with the same arguments in the same places: they are traced under this name.
    """

    name: str
    kind: Kind
    twins: tuple[str, ...] = ()

    @property
    def timing_source(self) -> str:
        """What its duration means: the host waited for the GPU, or only asked for work."""
        return semconv.HOST_SYNC if self.kind == "wait" else semconv.HOST_API


def _collective(name: str) -> Function:
    # NCCL 2.28 and later also export ncclAllReduceConfig and so on, with one more argument at the end.
    return Function(name, "collective", (f"{name}Config",))


def _cuda(name: str, kind: Kind) -> Function:
    # Programs built for a default stream per thread call these.
    return Function(name, kind, (f"{name}_ptsz", f"{name}_ptds"))


FUNCTIONS: Final[tuple[Function, ...]] = (
    *(
        _collective(name)
        for name in (
            "ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclAlltoAll", "ncclBroadcast", "ncclGather",
            "ncclScatter", "ncclReduce", "ncclBcast",
        )
    ),
    Function("ncclSend", "p2p"),
    Function("ncclRecv", "p2p"),
    Function("ncclCommInitRank", "init"),
    Function("ncclCommInitRankConfig", "init"),
    Function("ncclCommInitRankScalable", "init"),
    Function("ncclCommSplit", "split"),
    Function("ncclCommFinalize", "other"),
    Function("ncclCommDestroy", "destroy"),
    Function("ncclCommAbort", "destroy"),
    Function("ncclGroupStart", "other"),
    Function("ncclGroupEnd", "other"),
    _cuda("cudaStreamSynchronize", "wait"),
    _cuda("cudaEventSynchronize", "wait"),
    _cuda("cudaDeviceSynchronize", "wait"),
    _cuda("cudaMemcpy", "wait"),
    _cuda("cudaMemcpyAsync", "memory"),
    _cuda("cudaMalloc", "memory"),
    _cuda("cudaFree", "memory"),
    Function("ingero_step", "marker"),
)  # fmt: skip
"""The place of a function in this tuple is its `FN_<name>` on the kernel side."""

SYMBOLS: Final[dict[str, Function]] = {
    symbol: function for function in FUNCTIONS for symbol in (function.name, *function.twins)
}
"""Every symbol to look for in a library."""
