"""Which processes use NCCL or CUDA: reads /proc, opens nothing of theirs but the files they have mapped."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ingero_probes.ranks import LAUNCH_VARIABLES

PROC: Final = Path("/proc")
# Where the functions can be; which of these files really export them is for elf_symbols to find out.
_OF_INTEREST: Final = re.compile(r"/(libnccl[^/]*\.so|libcudart[^/]*\.so|libtorch_cuda\.so|libingero[^/]*\.so)[^/]*$")
_DELETED: Final = " (deleted)"


@dataclass(frozen=True, slots=True)
class Library:
    """A mapped file. `device` and `inode` are what it is; `path` is its name in the process that maps it."""

    device: str
    inode: int
    path: str
    opened_by: Path

    @property
    def identity(self) -> tuple[str, int]:
        """The same for every process and container that maps the file."""
        return self.device, self.inode


@dataclass(frozen=True, slots=True)
class Process:
    """A process that maps something of interest. `start_ticks` tells it from a later one with the same pid.

    `launch` holds the launcher's variables that it was started with, and nothing else of its environment.
    `confined` says that a seccomp filter is on it.
    """

    pid: int
    start_ticks: int
    name: str
    launch: dict[str, str]
    libraries: tuple[Library, ...]
    confined: bool


def scan(pids: Collection[int] = (), proc: Path = PROC) -> dict[int, Process]:
    """The processes of interest by pid; `pids` limits the search."""
    candidates = pids or [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    found = (inspect(pid, proc) for pid in candidates)
    return {process.pid: process for process in found if process is not None}


def inspect(pid: int, proc: Path = PROC) -> Process | None:
    """One process; None if it is gone, or maps nothing of interest."""
    folder = proc / str(pid)
    try:
        libraries = tuple(_libraries(folder, (folder / "maps").read_text(errors="replace")))
        if not libraries:
            return None
        start_ticks = _start_ticks(folder)
        process = Process(pid, start_ticks, _name(folder), _launch(folder), libraries, _confined(folder))
        # The files above were read one after another; another process may have got the pid in between.
        return process if _start_ticks(folder) == start_ticks else None
    except OSError:
        return None


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When the process started, in clock ticks since boot; None if it is gone."""
    try:
        return _start_ticks(proc / str(pid))
    except OSError:
        return None


def boot_id(proc: Path = PROC) -> str:
    """What tells this boot of the host from all others."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def _libraries(folder: Path, maps: str) -> Iterator[Library]:
    seen = set()
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or "x" not in fields[1]:
            continue
        addresses, _, _, device, inode, path = fields
        deleted = path.endswith(_DELETED)
        path = path.removesuffix(_DELETED)
        if (device, inode) in seen or not _OF_INTEREST.search(path):
            continue
        seen.add((device, inode))
        # Under the process's own root, which may be a container's. A deleted file is still there as a mapping.
        opened_by = folder / "map_files" / addresses if deleted else folder / "root" / path.lstrip("/")
        yield Library(device, int(inode), path, opened_by)


def _start_ticks(folder: Path) -> int:
    # The name in parentheses may hold blanks and parentheses of its own.
    return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])


def _name(folder: Path) -> str:
    try:
        return (folder / "exe").readlink().name.removesuffix(_DELETED)
    except OSError:
        return (folder / "comm").read_text(errors="replace").strip()


def _launch(folder: Path) -> dict[str, str]:
    # An environment may hold secrets: only the launcher's variables leave this function.
    pairs = (entry.partition("=") for entry in (folder / "environ").read_text(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs if name in LAUNCH_VARIABLES}


def _confined(folder: Path) -> bool:
    return re.search(r"^Seccomp:\s*2$", (folder / "status").read_text(errors="replace"), re.MULTILINE) is not None
