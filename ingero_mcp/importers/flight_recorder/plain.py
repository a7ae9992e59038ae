"""What plain data may be at most, before anything walks through it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

MAX_DEPTH: Final = 24
MAX_WEIGHT: Final = 1 << 27
"""A value weighs 1, a text or bytes one more for every 16 characters. What is there twice weighs twice."""

_PER_CHARACTERS: Final = 16
_CONTAINERS: Final = (list, tuple, dict)
_TEXTS: Final = (str, bytes)


def refuse_excess(value: Any, shared: AbstractSet[int] = frozenset()) -> None:
    """Raise ValueError if `value` contains itself, is nested too deeply, or weighs too much when it is unfolded.

    `shared` is the identity of the containers that may be in several places: a few bytes can put a list of lists of
    lists together in which nothing is large and that never ends when it is walked through.
    """
    _Scale(shared).weigh(value, 0)


class _Scale:
    def __init__(self, shared: AbstractSet[int]) -> None:
        self._shared = shared
        self._known: dict[int, tuple[int, int]] = {}

    def weigh(self, value: Any, depth: int) -> tuple[int, int]:
        """The weight of a value at this depth, and its height in containers."""
        known = self._known.get(id(value))
        if known is None:
            known = self._weigh(value, depth)
            if id(value) in self._shared:
                self._known[id(value)] = known
        # A container in itself is nested without end.
        if depth + known[1] > MAX_DEPTH:
            raise ValueError(f"data nested more than {MAX_DEPTH} deep")
        return known

    def _weigh(self, value: Any, depth: int) -> tuple[int, int]:
        if isinstance(value, dict):
            inside = (*value, *value.values())
        elif isinstance(value, _CONTAINERS):
            inside = tuple(value)
        else:
            return 1 + _length(value), 0
        if depth >= MAX_DEPTH:
            raise ValueError(f"data nested more than {MAX_DEPTH} deep")
        weight, height = 1 + len(inside), 0
        for inner in inside:
            if isinstance(inner, _CONTAINERS):
                inner_weight, inner_height = self.weigh(inner, depth + 1)
                weight += inner_weight - 1
                height = max(height, inner_height)
            else:
                weight += _length(inner)
        if weight > MAX_WEIGHT:
            raise ValueError(f"data that unfolds to more than {MAX_WEIGHT} values")
        return weight, height + 1


def _length(value: Any) -> int:
    return len(value) // _PER_CHARACTERS if isinstance(value, _TEXTS) else 0
