"""Values of the database as cells of an answer: strict JSON for programs, one safe line of text for models.

Recorded text is data. In the text channel nothing in a cell can end its field, its row or its direction of
writing; in the structured channel JSON quotes it.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

MAX_EXACT = 2**53 - 1
"""The largest integer that a client whose numbers are doubles keeps exact."""

NULL_TEXT = "\\N"
"""NULL in the text channel; a backslash inside a cell is doubled, so no text looks like it."""

_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
# Control, format (bidirectional, zero-width, tags), surrogate, private, unassigned, and the line separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def columns_beyond_exact(rows: Iterable[Sequence[object]], width: int) -> list[bool]:
    """For each column, whether its integers have to be strings because one of them is beyond 2^53 - 1."""
    texts = [False] * width
    for row in rows:
        for index, value in enumerate(row):
            texts[index] = texts[index] or _beyond_exact(value)
    return texts


def structured(value: object, *, integers_as_text: bool = False) -> Any:
    """The value as strict JSON data; `integers_as_text` makes every integer in it a decimal string."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value) if integers_as_text else value
    if isinstance(value, float):
        return value if math.isfinite(value) else _non_finite(value)
    if isinstance(value, Decimal):
        # As a number where the shortest spelling of the double is the same decimal, else digit for digit.
        return float(value) if Decimal(str(float(value))) == value else str(value)
    if isinstance(value, list | tuple):
        return [structured(item, integers_as_text=integers_as_text) for item in value]
    if isinstance(value, dict):
        return {str(key): structured(item, integers_as_text=integers_as_text) for key, item in value.items()}
    return _plain(value)


def text(value: object) -> str:
    """The value as one field of a tab-separated line."""
    if value is None:
        return NULL_TEXT
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else _non_finite(value)
    if isinstance(value, list | tuple | dict):
        return escaped(json.dumps(structured(value), ensure_ascii=False, separators=(",", ":")))
    return escaped(
        value if isinstance(value, str) else str(value if isinstance(value, int | Decimal) else _plain(value))
    )


def escaped(recorded: str) -> str:
    """Recorded text on one line: control, bidirectional, zero-width and the like become escapes."""
    if recorded.isascii() and recorded.isprintable() and "\\" not in recorded:
        return recorded
    return "".join(_ESCAPES.get(char) or (_code(char) if _is_unsafe(char) else char) for char in recorded)


def cut(value: object, most_bytes: int) -> tuple[object, bool]:
    """The value, or its beginning and a mark where it is longer than `most_bytes`; and whether it was cut."""
    if isinstance(value, str):
        return _cut_text(value, most_bytes)
    if isinstance(value, bytes | bytearray):
        return (value, False) if len(value) * 2 <= most_bytes else (_cut_text(value.hex(), most_bytes))
    if isinstance(value, list | tuple | dict):
        shown = json.dumps(structured(value), ensure_ascii=False, separators=(",", ":"))
        return (value, False) if len(shown.encode()) <= most_bytes else _cut_text(shown, most_bytes)
    return value, False


def _cut_text(whole: str, most_bytes: int) -> tuple[str, bool]:
    if len(whole) * 4 <= most_bytes:
        return whole, False
    encoded = whole.encode()
    if len(encoded) <= most_bytes:
        return whole, False
    kept = encoded[:most_bytes].decode(errors="ignore")
    return f"{kept}[cut: {len(encoded)} bytes]", True


def _beyond_exact(value: object) -> bool:
    if isinstance(value, int):
        return not -MAX_EXACT <= value <= MAX_EXACT
    if isinstance(value, list | tuple):
        return any(_beyond_exact(item) for item in value)
    if isinstance(value, dict):
        return any(_beyond_exact(item) for item in value.values())
    return False


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _plain(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)


def _is_unsafe(char: str) -> bool:
    # Variation selectors draw nothing either, and can carry a hidden message.
    return unicodedata.category(char) in _UNSAFE or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
