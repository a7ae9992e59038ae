"""The text itself, before any parser sees it: size, and characters that two parsers may read differently."""

from __future__ import annotations

import unicodedata

from ingero_mcp.errors import GuardError, Reason
from ingero_mcp.sqlguard import allowed, reasons

_PLAIN_CONTROLS = frozenset("\t\n\r")
_SHOWN = 5
_UNSEEN_MARKS = frozenset("\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f") | frozenset(
    map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)
"""Marks that cannot be seen. The others are part of words in many scripts, and letters to both parsers."""
_FENCE = "```"
_LANGUAGES = frozenset({"", "sql", "duckdb"})


def unfenced(sql: str) -> str:
    """`sql` without the fence that Markdown has around code; models write it out of habit."""
    text = sql.strip()
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return sql
    language, _, body = text.strip("`").partition("\n")
    return body if language.strip().lower() in _LANGUAGES and _FENCE not in body else sql


def check_text(sql: str) -> list[Reason]:
    """Every reason to refuse `sql` without parsing it."""
    if not sql.strip():
        return [reasons.empty()]
    found = []
    if len(sql) > allowed.MAX_CHARS:
        message = f"The text has {len(sql)} characters; at most {allowed.MAX_CHARS} are allowed."
        found.append(Reason("too_long", message, "Filter with a join or a range instead of long lists of values."))
    brackets = sum(map(sql.count, "([{"))
    if brackets > allowed.MAX_BRACKETS:
        message = f"The text has {brackets} opening brackets; at most {allowed.MAX_BRACKETS} are allowed."
        found.append(Reason("too_many_brackets", message, "Ask several smaller questions."))
    return found + check_characters(sql)


def check_characters(text: str) -> list[Reason]:
    """Reasons to refuse `text` for control characters and characters that cannot be seen."""
    # DuckDB 2.0 takes U+200B, U+2060 and U+FEFF for white space and sqlglot for letters, so a text can be one
    # harmless literal for one and a UNION with another table for the other. Categories, not single characters:
    # the next such character is then refused before anybody finds it.
    places: dict[str, int] = {}
    for place, char in enumerate(text):
        if char not in places and _is_refused(char):
            places[char] = place
    return [_invisible_reason(char, place) for char, place in list(places.items())[:_SHOWN]]


def _is_refused(char: str) -> bool:
    if char.isascii():
        return not char.isprintable() and char not in _PLAIN_CONTROLS
    return unicodedata.category(char)[0] in "CZ" or char in _UNSEEN_MARKS


def _invisible_reason(char: str, place: int) -> Reason:
    name = unicodedata.name(char, "control character")
    hint = "Between words write an ordinary space; inside a text put the character in with chr."
    message = f"Character U+{ord(char):04X} ({name.lower()}) is not allowed."
    return Reason("invisible_character", message, hint, place, example=f"'a' || chr({ord(char)}) || 'b'")


def literal(value: str | int | float) -> str:
    """`value` as a SQL literal, for queries that we build ourselves.

    Numbers that could change the operator before them come in brackets: `(-5)`. Raises GuardError for text
    that the guard would refuse anyway (control and invisible characters), because no literal can carry it.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # repr gives the shortest text that reads back as the same number; inf and nan need quotes.
        return f"({value!r}::DOUBLE)" if abs(value) < float("inf") else f"('{value!r}'::DOUBLE)"
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    found = check_characters(value)
    if found:
        raise GuardError(tuple(found))
    return "'" + value.replace("'", "''") + "'"
