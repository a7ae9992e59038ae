"""What to say of text that cannot be read: the habit of another dialect, the misspelled word, or the engine's words."""

from __future__ import annotations

import re
from difflib import get_close_matches

from ingero_mcp.errors import Reason
from ingero_mcp.sqlguard import reasons
from ingero_mcp.sqlguard.instead import KEYWORDS, SLIPS, Instead

_NEAR = 40
_BEHIND = 24
_WORD = re.compile(r"[A-Za-z_]+")
_LONGEST_MESSAGE = 160


def syntax_error(message: str, sql: str, offset: int | None) -> Reason:
    """The reason for `message`, which a parser gave of `sql` at the byte `offset`."""
    place = None if offset is None else len(sql.encode()[:offset].decode(errors="ignore"))
    slip, begin = _slip(sql, place)
    if slip and offset is None:
        offset = len(sql[:begin].encode())
    known = slip or _misspelled(sql, place) or _unfinished(message, sql)
    words = " ".join(message.split())
    words = words if len(words) <= _LONGEST_MESSAGE else words[:_LONGEST_MESSAGE] + "..."
    said = words if words.lower().startswith("syntax error") else f"Syntax error: {words}"
    hint = known.hint if known else "Write DuckDB SQL. " + reasons.SELECT_ONLY
    example = known.example if known else reasons.EXAMPLE
    return Reason("syntax", f"{said[0].upper()}{said[1:]}.", hint, offset, example, reasons.ASK_SCHEMA)


def _slip(sql: str, place: int | None) -> tuple[Instead | None, int]:
    """The habit that shows at `place`, and where it begins."""
    for slip in SLIPS:
        for found in slip.pattern.finditer(sql):
            if place is None or found.start() - _BEHIND <= place <= found.end() + _NEAR:
                return slip.instead, found.start()
    return None, 0


def _misspelled(sql: str, place: int | None) -> Instead | None:
    # The parser stops at the word itself, or at the one behind it: in `SELECT * FORM events` FORM is an alias to it.
    if place is None:
        return None
    before = _WORD.findall(sql[:place])[-1:]
    at = _WORD.match(sql, place)
    for word in [*([at[0]] if at else []), *before]:
        near = get_close_matches(word.lower(), KEYWORDS, n=1, cutoff=0.7)
        if near and near[0] != word.lower():
            return Instead(f"Did you mean {near[0].upper()} in place of {word}?")
    return None


def _unfinished(message: str, sql: str) -> Instead | None:
    if "unterminated string" in message:
        return Instead("A text ends with a single quote; one inside it is doubled.", "SELECT 'it''s'")
    if "unterminated quoted identifier" in message:
        return Instead("A name ends with a double quote; text stands in single quotes.", "node_id = 'gpu-1'")
    if sql.count("(") > sql.count(")"):
        return Instead("An opening bracket is never closed.", reasons.EXAMPLE)
    if "end of input" in message:
        return Instead("Something is missing at the end: a bracket, a value, a name.", reasons.EXAMPLE)
    return None
