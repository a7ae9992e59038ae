"""Reading the events of a trace one by one: what each is, and what of it is kept."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.importers.kineto.columns import Columns, Row, Site, Thread
from ingero_mcp.importers.kineto.groups import Groups
from ingero_mcp.importers.kineto.operations import is_nccl_kernel
from ingero_mcp.importers.kineto.records import ANNOTATION, Record, is_of_collective, said
from ingero_mcp.importers.kineto.timed import Timed, timed
from ingero_mcp.importers.kineto.units import integer
from ingero_mcp.importers.text import one_line

KERNEL_NAME: Final = "gpu.kernel.name"
MOST_RECORDS: Final = 1_000_000

_LONGEST_NAME: Final = 512
_LONGEST_CALL: Final = 100
_MOST_CACHED: Final = 200_000
_MOST_PROCESSES: Final = 10_000
_MOST_CATEGORIES: Final = 50
_STEP: Final = re.compile(r"ProfilerStep#([0-9]{1,9})")
_COPIES: Final = (
    ("DtoH", "DeviceToHost"),
    ("HtoD", "HostToDevice"),
    ("DtoD", "DeviceToDevice"),
    ("HtoH", "HostToHost"),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A step of the profiler, as one thread (`thread`) or one stream of the GPU (`stream`) saw it."""

    number: int
    start_ns: int
    duration_ns: int
    thread: Thread | None = None
    stream: int | None = None


class Survey:
    """What a trace holds. `left` counts events that are not imported by their category, `skipped` broken ones by why.

    `columns` has the rows so far: everything but collectives, which `kernels`, `annotations` (both on the GPU) and
    `records` (on the host) say together, and steps, which are in `marks`.
    """

    def __init__(self) -> None:
        self.columns = Columns()
        self.groups = Groups()
        self.kernels: list[Record] = []
        self.annotations: list[Record] = []
        self.records: list[Record] = []
        self.marks: list[Mark] = []
        self.processes: dict[int, str] = {}
        self.left: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self._sites: dict[tuple[Callable[[str], Site], str], int] = {}

    def take(self, event: object) -> None:
        """Read one event. Raises ValueError for more of something than is read; what is broken is counted."""
        if not isinstance(event, dict):
            self.skipped["that are not objects"] += 1
        elif event.get("ph") == "X":
            category = event.get("cat")
            read = _READERS.get(category.lower()) if isinstance(category, str) else None
            if read is not None:
                read(self, event)
            else:
                self._leave(event)
        elif event.get("ph") == "M":
            self._metadata(event)

    def _metadata(self, event: dict[str, Any]) -> None:
        args, pid = event.get("args"), integer(event.get("pid"))
        if event.get("name") == "process_name" and isinstance(args, dict) and pid is not None:
            name = args.get("name")
            if isinstance(name, str) and len(self.processes) < _MOST_PROCESSES:
                self.processes[pid] = one_line(name)

    def _leave(self, event: dict[str, Any]) -> None:
        given = event.get("cat")
        category = given[:_LONGEST_CALL] if isinstance(given, str) else ""
        known = category in self.left or len(self.left) < _MOST_CATEGORIES
        self.left[category if category and known else "other"] += 1

    def _timed(self, event: dict[str, Any]) -> Timed | None:
        found = timed(event)
        if isinstance(found, Timed):
            return found
        self.skipped[found] += 1
        return None

    def _kernel(self, event: dict[str, Any]) -> None:
        if (found := self._timed(event)) is not None:
            if is_nccl_kernel(found.name):
                self._record(self.kernels, found)
            else:
                self._add(found, _kernel_site)

    def _memcpy(self, event: dict[str, Any]) -> None:
        if (found := self._timed(event)) is not None:
            self._add(found, _memcpy_site)

    def _memset(self, event: dict[str, Any]) -> None:
        if (found := self._timed(event)) is not None:
            self._add(found, _memset_site)

    def _call(self, event: dict[str, Any]) -> None:
        if (found := self._timed(event)) is not None:
            self._add(found, _call_site)

    def _add(self, found: Timed, site_of: Callable[[str], Site]) -> None:
        name = found.name[:_LONGEST_NAME]
        number = self._sites.get((site_of, name))
        if number is None:
            if len(self._sites) >= _MOST_CACHED:
                self._sites.clear()
            number = self._sites[site_of, name] = self.columns.site_number(site_of(name))
        on_host = site_of is _call_site
        self.columns.add(
            Row(
                number,
                found.start_ns,
                found.duration_ns,
                thread=found.thread if on_host else None,
                stream=None if on_host else found.stream,
                bytes=None if on_host else found.argument("bytes"),
                correlation=found.argument("correlation"),
            )
        )

    def _on_host(self, event: dict[str, Any]) -> None:
        name = event.get("name")
        if not isinstance(name, str):
            self.skipped["without a name"] += 1
        elif is_of_collective(name):
            if (found := self._timed(event)) is not None:
                self._record(self.records, found)
        elif not self._mark(name, event, on_host=True):
            self._leave(event)

    def _gpu_annotation(self, event: dict[str, Any]) -> None:
        name = event.get("name")
        if isinstance(name, str) and name.startswith(ANNOTATION):
            if (found := self._timed(event)) is not None:
                self._record(self.annotations, found)
        elif not (isinstance(name, str) and self._mark(name, event, on_host=False)):
            self._leave(event)

    def _mark(self, name: str, event: dict[str, Any], *, on_host: bool) -> bool:
        match = _STEP.match(name)
        if match is None:
            return False
        found = self._timed(event)
        if found is not None and found.duration_ns is not None:
            self._bound(len(self.marks), "steps")
            where: dict[str, Any] = {"thread": found.thread} if on_host else {"stream": found.stream}
            self.marks.append(Mark(int(match[1]), found.start_ns, found.duration_ns, **where))
        return True

    def _record(self, records: list[Record], found: Timed) -> None:
        self._bound(len(self.kernels) + len(self.annotations) + len(self.records), "events of collectives")
        on_host = records is self.records
        records.append(
            Record(
                name=one_line(found.name, _LONGEST_CALL),
                start_ns=found.start_ns,
                duration_ns=found.duration_ns,
                said=said(found.name, found.args, self.groups),
                thread=found.thread if on_host else None,
                stream=None if on_host else found.stream,
                external=found.argument("External id"),
                correlation=found.argument("correlation"),
            )
        )

    def _bound(self, count: int, what: str) -> None:
        if count >= MOST_RECORDS:
            raise ValueError(f"holds more than {MOST_RECORDS} {what}; profile fewer steps in one trace")


def _gpu_site(name: str, attrs: str = "") -> Site:
    return Site(name, semconv.source_of(name), semconv.KERNEL_GPU, on_gpu=True, attrs=attrs)


def _kernel_site(name: str) -> Site:
    return _gpu_site("gpu.kernel", f"{json.dumps(KERNEL_NAME)}:{json.dumps(one_line(name, _LONGEST_NAME))}")


def _memcpy_site(name: str) -> Site:
    kind = next((kind for sign, kind in _COPIES if sign in name), one_line(name, 40))
    return _gpu_site("gpu.memcpy", f"{json.dumps(semconv.CUDA_MEMCPY_KIND)}:{json.dumps(kind)}")


def _memset_site(_name: str) -> Site:
    return _gpu_site("gpu.memset")


def _call_site(name: str) -> Site:
    call = one_line(name, _LONGEST_CALL)
    waits = "Synchronize" in call or ("Memcpy" in call and "Async" not in call)
    source = semconv.source_of(call)
    # The calls of ROCm are those of CUDA by other names.
    return Site(call, "cuda" if source == "otlp" else source, semconv.HOST_SYNC if waits else semconv.HOST_API)


# Where there is a second name for a category, it is that of PyTorch before 1.11.
_READERS: Final[dict[str, Callable[[Survey, dict[str, Any]], None]]] = {
    "kernel": Survey._kernel,
    "gpu_memcpy": Survey._memcpy,
    "memcpy": Survey._memcpy,
    "gpu_memset": Survey._memset,
    "memset": Survey._memset,
    "cuda_runtime": Survey._call,
    "runtime": Survey._call,
    "cuda_driver": Survey._call,
    "cpu_op": Survey._on_host,
    "operator": Survey._on_host,
    "user_annotation": Survey._on_host,
    "gpu_user_annotation": Survey._gpu_annotation,
}
