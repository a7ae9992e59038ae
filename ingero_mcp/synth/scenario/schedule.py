"""In which order the stages of a pipeline work on micro batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

Work = tuple[Literal["forward", "backward"], int]
"""What a stage does, and to which micro batch."""


def order_of(schedule: Literal["1f1b", "gpipe"], stage: int, stages: int, micro_batches: int) -> list[Work]:
    """The work of one stage in its order."""
    forwards: list[Work] = [("forward", number) for number in range(micro_batches)]
    backwards: list[Work] = [("backward", number) for number in range(micro_batches)]
    if schedule == "gpipe":
        return [*forwards, *backwards]
    ahead = min(stages - stage - 1, micro_batches)
    steady = [work for pair in zip(forwards[ahead:], backwards, strict=False) for work in pair]
    return [*forwards[:ahead], *steady, *backwards[micro_batches - ahead :]]


def interleave(schedule: Literal["1f1b", "gpipe"], stages: int, micro_batches: int) -> Iterator[tuple[int, Work]]:
    """The work of all stages, each after what it depends on: (stage, work)."""
    waiting = [order_of(schedule, stage, stages, micro_batches)[::-1] for stage in range(stages)]
    done: set[tuple[int, Work]] = set()
    while any(waiting):
        for stage, works in enumerate(waiting):
            while works and _is_ready(stage, works[-1], stages, done):
                work = works.pop()
                done.add((stage, work))
                yield stage, work


def _is_ready(stage: int, work: Work, stages: int, done: set[tuple[int, Work]]) -> bool:
    direction, number = work
    if direction == "forward":
        return stage == 0 or (stage - 1, work) in done
    return (stage, ("forward", number)) in done and (stage == stages - 1 or (stage + 1, work) in done)
