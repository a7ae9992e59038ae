"""Numbers as a trace writes them, bare or quoted, read exactly. They come here as text."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

MOST_NS: Final = 1 << 62

_MOST_DIGITS: Final = 17
_LONGEST: Final = 40
_NUMBER: Final = re.compile(r"-?[0-9]++(?:\.[0-9]*+)?(?:[eE][-+]?[0-9]++)?")
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


def nanoseconds(microseconds: object) -> int | None:
    """Microseconds in nanoseconds, exactly down to the nanosecond; None for what is no number, or absurd."""
    if type(microseconds) is not str or len(microseconds) > _LONGEST or not microseconds.isascii():
        return None
    whole, _, fraction = microseconds.partition(".")
    if whole.isdigit() and len(whole) <= _MOST_DIGITS and len(fraction) <= 3 and (not fraction or fraction.isdigit()):
        value = int(whole) * 1000 + int(fraction.ljust(3, "0"))
    elif _NUMBER.fullmatch(microseconds):
        number = Decimal(microseconds)
        if number.adjusted() > _MOST_DIGITS:
            return None
        value = int((number * 1000).to_integral_value(ROUND_HALF_EVEN))
    else:
        return None
    return value if -MOST_NS < value < MOST_NS else None


def integer(value: object, least: int = 0, most: int = MOST_NS) -> int | None:
    """An integer from `least` to `most`; None for anything else."""
    if type(value) is not str or not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if least <= number <= most else None
