"""How numbers and ranks are put into sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

_MOST: Final = 12


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as people write them: `0-3, 7`; what is beyond a dozen pieces is counted."""
    pieces: list[str] = []
    run: list[int] = []
    for rank in [*sorted(set(ranks)), None]:
        if run and (rank is None or rank != run[-1] + 1):
            pieces += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
            run = []
        if rank is not None:
            run.append(rank)
    return listed(pieces)


def who(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 5`."""
    known = sorted(set(ranks))
    return f"rank{'' if len(known) == 1 else 's'} {ranks_text(known)}"


def verb(ranks: Iterable[int], one: str, many: str) -> str:
    """The form of a verb that fits as many ranks."""
    return one if len(set(ranks)) == 1 else many


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def listed(pieces: Sequence[str]) -> str:
    """The pieces with commas; what is beyond a dozen is counted."""
    shown = ", ".join(pieces[:_MOST])
    return f"{shown} and {len(pieces) - _MOST} more" if len(pieces) > _MOST else shown


def plural(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration_text(ns: float) -> str:
    """A duration in the unit that suits it: `26.1 s`, `290 ms`, `84 us`."""
    size = abs(ns)
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if size >= scale:
            return f"{ns / scale:.3g} {unit}" if size < 100 * scale else f"{ns / scale:.0f} {unit}"
    return f"{ns:.0f} ns"
