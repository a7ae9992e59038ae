"""Whether a probe could kill a process that runs under a seccomp filter.

Where the kernel returns from a probed function through a system call of its own, and filters see it, a filter that does
not know that call ends the traced process. No version says whether this kernel does that, so one process of our own is
put under such a filter and traced first: it is the only way in which these probes can hurt a job.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ingero_probes.discover import PROC
from ingero_probes.elf_symbols import read_functions

_PROBED: Final = "getppid"
# Allows every system call but uretprobe (335 on x86-64), for which the process is killed; then calls a libc function
# that by then has a probe on its return.
_VICTIM: Final = f"""
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 335, 0x06, 0, 0, 0x80000000, 0x06, 0, 0, 0x7FFF0000)
buffer = ctypes.create_string_buffer(code)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer)))
libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, ctypes.byref(filter), 0, 0):
    sys.exit(3)
print(flush=True)
sys.stdin.readline()
libc.{_PROBED}()
"""
_TIMEOUT_S: Final = 10


def survives(attach: Callable[[Path, int, int], None]) -> bool:
    """True if a confined process of ours lived through a probed call; `attach` puts the probe on (file, address, pid).

    False also where that could not be tried.
    """
    with subprocess.Popen([sys.executable, "-c", _VICTIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as victim:
        try:
            assert victim.stdout is not None
            if not victim.stdout.readline():
                return False
            library = _libc_of(victim.pid)
            address = read_functions(library, [_PROBED]).get(_PROBED) if library else None
            if library is None or address is None:
                return False
            attach(library, address, victim.pid)
            victim.communicate(b"\n", timeout=_TIMEOUT_S)
            return victim.returncode == 0
        finally:
            victim.kill()


def _libc_of(pid: int) -> Path | None:
    for line in (PROC / str(pid) / "maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "/libc.so." in path or "/libc-" in path:
            return PROC / str(pid) / "root" / path.lstrip("/")
    return None
