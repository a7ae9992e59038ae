"""Unix time of monotonic times: the kernel stamps records with CLOCK_MONOTONIC, the contract wants Unix nanoseconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ingero_mcp.clock import monotonic_s, now_ns

STEP_NS: Final = 1_000_000
"""A change of the offset by more than this between two samples is a step of the clock, not its drift."""

_TRIES: Final = 5
_KEPT: Final = 4096


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC in ns. A double holds it to the nanosecond for the first 50 days of a boot."""
    return round(monotonic_s() * 1e9)


@dataclass(frozen=True, slots=True)
class ClockSample:
    """Unix time is monotonic time plus `offset_ns`, as read at `mono_ns`, give or take half of `window_ns`."""

    mono_ns: int
    offset_ns: int
    window_ns: int


class WallTime:
    """The offset between the two clocks, sampled each second; an event is converted by the offset of its time.

    `injected_ns` moves the wall clock: tests stand for two hosts whose clocks differ.
    """

    def __init__(
        self,
        injected_ns: int = 0,
        monotonic: Callable[[], int] = monotonic_ns,
        wall: Callable[[], int] = now_ns,
    ) -> None:
        self._injected_ns = injected_ns
        self._monotonic = monotonic
        self._wall = wall
        self._samples: list[ClockSample] = []
        self.sample()

    def sample(self) -> int:
        """Read both clocks; returns by how much the wall clock was stepped since the last time, 0 if it was not."""
        best = min((self._read() for _ in range(_TRIES)), key=lambda sample: sample.window_ns)
        stepped_ns = best.offset_ns - self._samples[-1].offset_ns if self._samples else 0
        self._samples.append(best)
        del self._samples[:-_KEPT]
        return stepped_ns if abs(stepped_ns) > STEP_NS else 0

    @property
    def last(self) -> ClockSample:
        """The newest sample."""
        return self._samples[-1]

    def unix_ns(self, mono_ns: int) -> int:
        """Unix time of a monotonic time, by the last sample before it."""
        at = bisect_right(self._samples, mono_ns, key=lambda sample: sample.mono_ns)
        return mono_ns + self._samples[max(0, at - 1)].offset_ns

    def _read(self) -> ClockSample:
        # The wall clock read between two readings of the monotonic one: it was read within that window.
        before = self._monotonic()
        wall = self._wall()
        after = self._monotonic()
        middle = (before + after) // 2
        return ClockSample(middle, wall + self._injected_ns - middle, after - before)
