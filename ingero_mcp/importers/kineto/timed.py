"""An event with a name, a time and a length, as the trace wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ingero_mcp.importers.kineto.columns import Thread
from ingero_mcp.importers.kineto.units import integer, nanoseconds

_MOST_STREAMS: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Timed:
    """Times in nanoseconds as the trace counts them; `duration_ns` is None where the event has no end."""

    name: str
    start_ns: int
    duration_ns: int | None
    args: dict[str, Any]
    event: dict[str, Any]

    @property
    def thread(self) -> Thread:
        return integer(self.event.get("pid")), integer(self.event.get("tid"))

    @property
    def stream(self) -> int | None:
        return integer(self.args.get("stream", self.event.get("tid")), 0, _MOST_STREAMS)

    def argument(self, key: str) -> int | None:
        """An argument that is a number from 0 upward."""
        return integer(self.args.get(key))


def timed(event: dict[str, Any]) -> Timed | str:
    """Read what every event has; for one that cannot be used, why."""
    name, args, length = event.get("name"), event.get("args"), event.get("dur")
    if not isinstance(name, str) or not name:
        return "without a name"
    start_ns = nanoseconds(event.get("ts"))
    duration_ns = None if length is None else nanoseconds(length)
    if start_ns is None or (duration_ns is None and length is not None) or (duration_ns or 0) < 0:
        return "without a usable ts and dur"
    if start_ns == 0 and duration_ns == 0:
        # A fault of some versions of the profiler: such an event happened, but at no known time.
        return "with ts 0 and dur 0"
    return Timed(name, start_ns, duration_ns, args if isinstance(args, dict) else {}, event)
