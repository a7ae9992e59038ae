"""Which libraries the probes are attached to, and which processes they cover."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ingero_mcp.errors import ProbeError
from ingero_probes.discover import Library, Process
from ingero_probes.elf_symbols import read_functions
from ingero_probes.functions import FUNCTIONS, SYMBOLS, Function

_EVERY_PROCESS: Final = -1


class Attaches(Protocol):
    """What attaches probes: `attach.Kernel`, or a stand-in of the tests."""

    def attach(self, library: Path, addresses: dict[str, int], pid: int = -1) -> list[Function]:
        """Attach to the functions of a file."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What is traced, and what is not."""

    processes: dict[int, str]
    libraries: list[str]
    functions: list[str]
    not_found: list[str]
    problems: list[str]


class Libraries:
    """Attaches once to each file, for all processes that map it. An attachment stays when the last of them ends: the
    next job that loads the file is seen from its first call on.

    `spare_confined`: processes under a seccomp filter are left alone, so that each other process needs its own.
    """

    def __init__(self, kernel: Attaches, *, spare_confined: bool = False) -> None:
        self._kernel = kernel
        self._spare_confined = spare_confined
        self._attached: dict[tuple[tuple[str, int], tuple[int, int] | None], list[Function]] = {}
        self.paths: dict[tuple[str, int], str] = {}
        """The attached files, by what they are."""
        self.problems: dict[str, str] = {}
        """What is not traced although it should be, and why."""

    def cover(self, processes: Iterable[Process]) -> None:
        """Attach to what these processes map and is not attached yet."""
        for process in processes:
            if self._spare_confined and process.confined:
                self.problems[f"process {process.pid}"] = (
                    f"process {process.pid} is not traced: it runs under a seccomp filter, and on this kernel the "
                    "return of a probed function could be what that filter kills it for"
                )
                continue
            for library in process.libraries:
                self._attach(library, process)

    @property
    def functions(self) -> set[Function]:
        """What is traced somewhere."""
        return {function for functions in self._attached.values() for function in functions}

    def coverage(self, processes: Iterable[Process]) -> Coverage:
        """What is traced now, in these processes; a function is missing if a library of its kind lacks it."""
        traced = self.functions
        kinds = {_kind_of(function) for function in traced}
        return Coverage(
            {process.pid: process.name for process in processes},
            sorted(set(self.paths.values())),
            sorted(function.name for function in traced),
            [one.name for one in FUNCTIONS if one not in traced and _kind_of(one) in kinds],
            sorted(self.problems.values()),
        )

    def _attach(self, library: Library, process: Process) -> None:
        # A pid that is used again is another process: its start belongs to what it is.
        key = (library.identity, (process.pid, process.start_ticks) if self._spare_confined else None)
        if key in self._attached:
            return
        try:
            # Open it first: then it is this file to the end, whatever becomes of its name or of the process.
            with library.opened_by.open("rb") as file:
                opened = Path(f"/proc/self/fd/{file.fileno()}")
                addresses = read_functions(opened, SYMBOLS)
                functions = self._kernel.attach(
                    opened, addresses, process.pid if self._spare_confined else _EVERY_PROCESS
                )
        except OSError:
            return  # the process is gone, or was never ours to look into; the next one may be
        except ProbeError as error:
            self.problems[library.path] = f"{library.path}: {error}"
            functions = []
        self._attached[key] = functions
        if functions:
            self.paths[library.identity] = library.path


def _kind_of(function: Function) -> str:
    return function.name[:4]
