"""The kernel side: compiles, attaches, reads records. The only module that imports bcc."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final

from ingero_mcp.errors import ProbeError
from ingero_probes.functions import FUNCTIONS, SYMBOLS, Function

_SOURCES: Final = tuple(
    Path(__file__).parent / "bpf" / f"{name}.c" for name in ("record", "thread", "sched", "nccl", "cuda")
)
_DISTRIBUTION: Final = "/usr/lib/python3/dist-packages"
HEADERS: Final = (Path(f"/lib/modules/{os.uname().release}/build"), Path("/sys/kernel/kheaders.tar.xz"))
TRACEPOINTS: Final = Path("/sys/kernel/debug/tracing/events/sched")
LOSSES: Final = ("ring_full", "threads_full", "counters_full", "abandoned_calls", "exits_without_entry")
"""What the kernel side counts, in the order of `enum loss`. The last says only that a call had begun before us."""


def require_ebpf() -> None:
    """Raise ProbeError, with what to do about it, if probes cannot work here."""
    if os.geteuid() != 0:
        raise ProbeError("attaching probes needs root; run: sudo ingero trace ...")
    if os.uname().machine != "x86_64":
        raise ProbeError(f"the probes read the arguments of x86-64 calls; this machine is {os.uname().machine}")
    if not any(path.exists() for path in HEADERS):
        raise ProbeError(
            f"no kernel headers: BCC compiles against {HEADERS[0]}; install linux-headers-$(uname -r) (Debian, Ubuntu) "
            "or kernel-devel-$(uname -r) (RHEL), or mount /lib/modules and /usr/src in a container"
        )
    if not TRACEPOINTS.exists():
        raise ProbeError("tracefs is not mounted where BCC reads it; run: mount -t debugfs debugfs /sys/kernel/debug")
    _bcc()


def _bcc() -> Any:
    try:
        return importlib.import_module("bcc")
    except ImportError:
        pass
    # The distribution's package lies outside of a virtual environment. Last on the path, so that nothing of ours is
    # shadowed by what else lies there.
    if _DISTRIBUTION not in sys.path:
        sys.path.append(_DISTRIBUTION)
    try:
        return importlib.import_module("bcc")
    except ImportError as error:
        raise ProbeError(
            f"no BCC for {sys.executable} ({error}); it is a package of the distribution, not of PyPI: apt-get install "
            "python3-bpfcc (Debian, Ubuntu), dnf install python3-bcc (RHEL, Fedora)"
        ) from None


class Kernel:
    """The compiled programs and what they are attached to. Everything is gone when this process is.

    With `pids` only calls of these processes are recorded; a probe on a file still costs all who map it its trap.
    """

    def __init__(self, pids: Collection[int] = ()) -> None:
        bcc = _bcc()
        # One probe per function and library, at worst per process too: BCC's own limit of 1000 is for one-off tools.
        bcc._default_probe_limit = 100_000
        numbers = [f"-DFN_{function.name}={number}" for number, function in enumerate(FUNCTIONS)]
        numbers.append(f"-DONLY_WANTED={int(bool(pids))}")
        try:
            self._bpf = bcc.BPF(text="\n".join(path.read_text() for path in _SOURCES), cflags=numbers)
        except Exception as error:  # BCC raises nothing narrower
            raise ProbeError(f"the kernel did not take the probes: {error}") from error
        self._records: list[bytes] = []
        self._probes: list[int] = []
        for pid in pids:
            self._bpf["wanted"][ctypes.c_uint32(pid)] = ctypes.c_uint32(1)
        self._bpf["ring"].open_ring_buffer(self._take)

    def attach(self, library: Path, addresses: dict[str, int], pid: int = -1) -> list[Function]:
        """Attach to the functions of a file, in every process or in one; returns what was attached.

        Symbols with one address (`ncclX` is an alias of `pncclX`) are one function.
        """
        attached = []
        by_address = {address: SYMBOLS[symbol] for symbol, address in reversed(addresses.items())}
        for address, function in by_address.items():
            try:
                # The return first: an entry whose return is not seen would look like a call that never ends.
                if function.kind != "marker":
                    self.attach_return(library, address, pid)
                self._probe(self._bpf.attach_uprobe, f"enter_{function.name}", library, address, pid)
            except Exception as error:  # BCC raises nothing narrower
                raise ProbeError(f"cannot attach to {function.name}: {error}") from error
            attached.append(function)
        return attached

    def attach_return(self, library: Path, address: int, pid: int) -> None:
        """Attach to the return of one function."""
        self._probe(self._bpf.attach_uretprobe, "leave", library, address, pid)

    def _probe(self, attach: Callable[..., Any], program: str, library: Path, address: int, pid: int) -> None:
        attach(name=str(library).encode(), addr=address, pid=pid, fn_name=program.encode())
        # BCC keeps them by path and address, which here may be those of another file.
        self._probes += self._bpf.uprobe_fds.values()
        self._bpf.uprobe_fds.clear()

    def poll(self) -> list[bytes]:
        """The records since the last poll, in the order they were made."""
        self._bpf.ring_buffer_consume()
        records, self._records = self._records, []
        return records

    def losses(self) -> dict[str, int]:
        """What was counted since the start, by the names of `LOSSES`."""
        counts = self._bpf["losses"]
        return {name: counts[number].value for number, name in enumerate(LOSSES)}

    def open_calls(self) -> Iterator[bytes]:
        """Records of the calls in progress; without an end."""
        for thread in self._bpf["threads"].values():
            if thread.in_call:
                yield bytes(thread.call)

    def forget(self, pid: int) -> None:
        """Drop what was counted for a process that is gone; another may get its number."""
        for table in ("comms", "channels"):
            counters = self._bpf[table]
            for key in [key for key in counters.keys() if key.pid == pid]:  # noqa: SIM118  # not a dict
                del counters[key]

    def close(self) -> None:
        """Detach everything; may be called twice."""
        # The kernel waits for each: about 0.1 s, and one after the other even where many threads close at once.
        for probe in self._probes:
            os.close(probe)
        self._probes.clear()
        self._bpf.cleanup()

    def _take(self, _: object, data: int, size: int) -> None:
        self._records.append(ctypes.string_at(data, size))
