"""Stretches: what was seen of one count of collectives, and where it fell back.

A rank counts the collectives of a communicator. Calls arrive in batches, mostly in order, sometimes late or again. A
stretch is what came without a gap in that order; where a later stretch does not begin above an earlier one, the count
fell back between them, and a new epoch began.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

REMEMBERED: Final = 64
"""How many of the newest sequence numbers of a stretch are known one by one."""

MOST: Final = 16
"""Stretches that are kept apart; beyond that, neighbours that fit together are joined."""

MOST_EPOCHS: Final = 256
"""More are not kept: the oldest are then taken for one. A count that falls back all the time is none."""

# Threads of a rank may pass each other by less than this; nothing is begun anew in less.
_INTERLEAVED_NS: Final = 1_000_000_000
# What lies between two calls that are further apart may come yet, and tell that the count fell back meanwhile.
_PAUSE_NS: Final = 10_000_000_000
_MASK: Final = (1 << REMEMBERED) - 1


@dataclass(slots=True)
class Stretch:
    """Calls from `first_seq` to `last_seq`. Bit i of `seen`: number `last_seq - i` was among them.

    `last_ns` is the time of the newest of the remembered calls. `attached`: the numbers count from an arbitrary moment.
    """

    first_ns: int
    first_seq: int
    last_ns: int
    last_seq: int
    seen: int = 1
    attached: bool = False

    def is_followed_by(self, time_ns: int, seq: int) -> bool:
        """Whether a call goes on from here, in time and in number."""
        return seq > self.last_seq and 0 <= time_ns - self.last_ns <= _PAUSE_NS

    def advance(self, time_ns: int, seq: int, seen: int = 1) -> None:
        """Take in calls up to `seq`; `seen` are the numbers just below it that are among them."""
        steps = seq - self.last_seq
        self.seen = (seen | self.seen << steps if steps < REMEMBERED else seen) & _MASK
        self.last_seq = seq
        self.last_ns = max(self.last_ns, time_ns)

    def take_in(self, time_ns: int, seq: int) -> None:
        """Take in a call of that time, or one that another thread passed."""
        if seq > self.last_seq:
            self.advance(time_ns, seq)
            return
        self.first_ns, self.first_seq = min(self.first_ns, time_ns), min(self.first_seq, seq)
        if self.last_seq - seq < REMEMBERED:
            self.seen |= 1 << self.last_seq - seq
            self.last_ns = max(self.last_ns, time_ns)

    def covers(self, first: tuple[int, int], last: tuple[int, int]) -> bool:
        """Whether calls from `first` to `last`, each a time and a number, lie within."""
        return (
            self.first_ns <= first[0]
            and last[0] <= self.last_ns
            and self.first_seq <= first[1]
            and last[1] <= self.last_seq
        )

    def mark(self, seq: int, seen: int) -> None:
        """Remember calls that lie within, `seen` are numbers from `seq` downward."""
        self.seen |= seen << self.last_seq - seq & _MASK if self.last_seq - seq < REMEMBERED else 0

    def has(self, seq: int) -> bool:
        """Whether a call of that number was seen; what is too far below the highest to tell counts as seen."""
        behind = self.last_seq - seq
        if behind < 0 or seq < self.first_seq:
            return False
        return seq == self.first_seq or behind >= REMEMBERED or bool(self.seen >> behind & 1)


@dataclass(frozen=True, slots=True)
class Epoch:
    """From `from_ns` on, until the next one."""

    from_ns: int
    attached: bool


def place(stretches: list[Stretch], time_ns: int, seq: int) -> Stretch | None:
    """Put a call into the stretch that it belongs to; returns the one that begins with it, if it belongs to none."""
    at = bisect_right(stretches, time_ns, key=lambda stretch: stretch.first_ns)
    if at:
        before = stretches[at - 1]
        if time_ns <= before.last_ns or before.is_followed_by(time_ns, seq) or _was_passed(before, time_ns, seq):
            before.take_in(time_ns, seq)
            return None
    if at < len(stretches) and _was_passed(stretches[at], time_ns, seq):
        stretches[at].take_in(time_ns, seq)
        return None
    begun = Stretch(time_ns, seq, time_ns, seq)
    stretches.insert(at, begun)
    return begun


def _was_passed(stretch: Stretch, time_ns: int, seq: int) -> bool:
    apart_ns = max(stretch.first_ns - time_ns, time_ns - stretch.last_ns)
    return apart_ns <= _INTERLEAVED_NS and not stretch.has(seq)


def join(stretches: list[Stretch]) -> None:
    """Join neighbours between which nothing is missing; beyond MOST, the oldest that fit together."""
    at = 1
    while at < len(stretches):
        first, second = stretches[at - 1 : at + 1]
        closes = second.first_seq == first.last_seq + 1 and first.is_followed_by(second.first_ns, second.first_seq)
        if closes or (second.first_seq > first.last_seq and len(stretches) > MOST):
            first.attached = first.attached or second.attached
            first.advance(second.last_ns, second.last_seq, second.seen)
            del stretches[at]
        else:
            at += 1
    while len(stretches) > MOST_EPOCHS:
        stretches[1].first_ns = stretches[0].first_ns
        del stretches[0]


def epochs(stretches: list[Stretch]) -> list[Epoch]:
    """The epochs that they make."""
    found: list[Epoch] = []
    highest = 0
    for stretch in stretches:
        if found and stretch.first_seq > highest:
            highest = max(highest, stretch.last_seq)
            continue
        found.append(Epoch(stretch.first_ns, stretch.attached))
        highest = stretch.last_seq
    return found
