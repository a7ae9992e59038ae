"""The training step: from a marker where the job gives one, else from the period of the world communicator's calls.

A training loop issues the same collectives in the same order in every step, so their kinds and sizes repeat with a
period, the same on all ranks: each rank finds the same numbers by itself. A step ends with the first synchronize after
its last collective; what follows (data loading, the next forward pass) belongs to the next one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Literal

StepSource = Literal["marker", "period"]

_REPEATS: Final = 3
# Identical layers make runs of equal collectives inside a step, and a short run of them is no period.
_MIN_EVIDENCE: Final = 16
# A period that held for n collectives and then broke was such a run: it has to hold for twice as long to be believed
# again. No longer than this, though, for it may as well have been the training loop, before an evaluation.
_MAX_EVIDENCE: Final = 256
_MAX_HISTORY: Final = 8192
# Not worth waiting for any more; a period found later than this still numbers what comes after it.
_GIVE_UP_AFTER: Final = 1024


class Period:
    """Finds the period of a sequence, and numbers its repetitions."""

    def __init__(self) -> None:
        self._seen: list[Hashable] = []
        self._forgotten = 0
        self._first_step = 0
        self._phase = 0
        self._broke_after: dict[int, int] = {}
        self.length: int | None = None
        """How many collectives make a step; None until that is known."""

    def add(self, signature: Hashable) -> None:
        """The next collective."""
        self._seen.append(signature)
        if self.length is None:
            self._look()
        elif self._seen[-1] != self._seen[-1 - self.length]:
            self._broke(self.length)
        if len(self._seen) > _MAX_HISTORY:
            dropped = len(self._seen) // 2
            del self._seen[:dropped]
            self._forgotten += dropped

    def place_of(self, position: int) -> tuple[int, bool] | None:
        """The step of the collective at this position, and whether it is the last one of its step.

        None before the loop, and where no period is known.
        """
        if self.length is None or position < self._phase:
            return None
        step, within = divmod(position - self._phase, self.length)
        return self._first_step + step, within == self.length - 1

    def _look(self) -> None:
        seen = self._seen
        # Trying after each collective costs the square of their number; later on the answer may come a little later.
        if len(seen) > 64 and len(seen) % (len(seen) // 32) != 0:
            return
        for length in range(1, len(seen) // _REPEATS + 1):
            if seen[-1] != seen[-1 - length]:
                continue
            start = len(seen) - 1
            while start >= length and seen[start] == seen[start - length]:
                start -= 1
            start -= length - 1
            if len(seen) - start >= self._evidence(length):
                self.length = length
                self._phase = self._forgotten + start
                return

    def _evidence(self, length: int) -> int:
        # What repeats every 3 also repeats every 6.
        broke_after = max((held for broken, held in self._broke_after.items() if length % broken == 0), default=0)
        return max(_REPEATS * length, _MIN_EVIDENCE, min(2 * broke_after, _MAX_EVIDENCE))

    def _broke(self, length: int) -> None:
        # Later steps get later numbers, whatever the period turns out to be.
        end = self._forgotten + len(self._seen) - 1
        last = self.place_of(end - 1)
        self._first_step = last[0] + 1 if last else self._first_step
        self._broke_after[length] = end - self._phase
        self.length = None


class StepClock:
    """Which step a process is in, at any point of its own sequence of calls."""

    def __init__(self) -> None:
        self.period = Period()
        self._marked: int | None = None
        self._collectives = 0
        self._synchronized = False

    def mark(self, step: int) -> None:
        """The job says that this step begins."""
        self._marked = step

    def collective(self, signature: Hashable) -> None:
        """A collective on the world communicator was entered."""
        self.period.add(signature)
        self._collectives += 1
        self._synchronized = False

    def synchronized(self) -> None:
        """A synchronize returned."""
        self._synchronized = True

    def now(self) -> Moment:
        """Where the process is; its step may become known later."""
        return Moment(self._marked, self._collectives - 1, self._synchronized)

    @property
    def is_undecided(self) -> bool:
        """Whether steps may still become known that are not known now."""
        return self._marked is None and self.period.length is None and self._collectives < _GIVE_UP_AFTER

    def step_of(self, moment: Moment) -> tuple[int, StepSource] | None:
        """The step at that point, and what says so."""
        if moment.marked is not None:
            return moment.marked, "marker"
        place = self.period.place_of(moment.position)
        if place is None:
            return None
        step, is_last = place
        return step + (is_last and moment.synchronized), "period"


class Moment:
    """A point in the sequence of a process: the last marker, the last collective, and if a synchronize followed it."""

    __slots__ = ("marked", "position", "synchronized")

    def __init__(self, marked: int | None, position: int, synchronized: bool) -> None:
        self.marked = marked
        self.position = position
        self.synchronized = synchronized
