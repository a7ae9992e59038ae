"""Monotonic times become Unix times by the offset that was valid then."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from ingero_probes.walltime import WallTime, monotonic_ns


class Clocks:
    """Two clocks that a test moves; reading them takes time."""

    def __init__(self, offset_ns: int, reading_ns: int) -> None:
        self.now_ns, self.offset_ns, self.reading_ns = 1_000_000_000, offset_ns, reading_ns

    def monotonic(self) -> int:
        self.now_ns += self.reading_ns
        return self.now_ns

    def wall(self) -> int:
        self.now_ns += self.reading_ns
        return self.now_ns + self.offset_ns


@given(offset_ns=st.integers(0, 2**61), reading_ns=st.integers(0, 10_000), injected_ns=st.integers(-(10**9), 10**9))
def test_the_error_is_within_the_window(offset_ns: int, reading_ns: int, injected_ns: int) -> None:
    clocks = Clocks(offset_ns, reading_ns)
    clock = WallTime(injected_ns, clocks.monotonic, clocks.wall)
    error_ns = clock.unix_ns(clocks.now_ns) - (clocks.now_ns + offset_ns + injected_ns)
    assert abs(error_ns) <= clock.last.window_ns / 2


def test_a_step_of_the_clock_is_told_and_old_times_keep_their_offset() -> None:
    clocks = Clocks(10**18, 10)
    clock = WallTime(0, clocks.monotonic, clocks.wall)
    before_ns = clocks.now_ns
    clocks.now_ns += 10**9
    assert clock.sample() == 0
    clocks.now_ns += 10**9
    clocks.offset_ns += 5 * 10**9
    assert clock.sample() == 5 * 10**9
    assert clock.sample() == 0
    assert clock.unix_ns(before_ns) == before_ns + 10**18
    assert clock.unix_ns(clocks.now_ns) == clocks.now_ns + 10**18 + 5 * 10**9


def test_the_real_clocks_agree_to_a_millisecond() -> None:
    clock = WallTime()
    assert clock.last.window_ns < 1_000_000
    assert abs(clock.unix_ns(time.monotonic_ns()) - time.time_ns()) < 1_000_000
    assert abs(monotonic_ns() - time.monotonic_ns()) < 1_000_000
