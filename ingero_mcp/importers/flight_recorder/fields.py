"""Single values of a dump, of which nothing is certain: a value of the wrong kind is None."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

EARLIEST_NS: Final = int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()) * 10**9

_TIMES: Final = range(EARLIEST_NS, int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 10**9)
_MAX_INT64: Final = 2**63 - 1
_MAX_DIGITS: Final = 20


def number(value: Any, most: int = _MAX_INT64) -> int | None:
    """An integer from 0 to `most`; dumps in JSON have some as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None


def time_ns(value: Any) -> int | None:
    """A time in Unix nanoseconds that can be true; dumps in JSON have 0 for none."""
    value = number(value)
    return value if value is not None and value in _TIMES else None


def words(value: Any, limit: int) -> str:
    """Text of at most `limit` characters, each of which can be stored; empty if the value is no text."""
    if not isinstance(value, str):
        return ""
    # JSON can escape half of a surrogate pair, which is no character.
    return value[:limit].encode(errors="replace").decode()
