"""The JSON of a trace, read event by event, and repaired where profilers are known to write what is not JSON.

The standard parser is kept: it takes one event at a time out of a window of text, which bounds memory as a streaming
parser would, hands over numbers as they were written, and says where it failed, so that the event can be repaired and
read again. Repaired are backslashes and control characters in names, bytes that are not UTF-8, and the words inf and
nan. Anything else that is not JSON is refused with its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from ingero_mcp.importers.kineto.window import LONE, Window
from ingero_mcp.importers.text import one_line

EVENTS: Final = "traceEvents"
MAX_ENTRY: Final = 16 << 20
"""Characters of one event, or of one member beside the events."""

_LOOKAHEAD: Final = 1 << 18
_LONGEST_BROKEN: Final = 1 << 21
_MARGIN: Final = 64  # an error so near to the end of the window may come from the end
_GAP: Final = re.compile(r"[ \t\n\r]*+")
_STRING: Final = r'"(?:[^"\\]++|\\.)*+"'
_BRACKET: Final = re.compile(_STRING + r'|[{}\[\]"]', re.DOTALL)
_REPAIRABLE: Final = re.compile(_STRING + r"|-?\b(?:inf(?:inity)?|nan)\b", re.DOTALL | re.IGNORECASE)
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_WORD: Final = re.compile(r"[-+.\w]++")


def _nothing(_constant: str) -> None:
    return None


# Numbers stay text: whoever needs one reads it exactly, and a number with a million digits costs nothing.
_STRICT: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_nothing)
_LENIENT: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_nothing, strict=False)


@dataclass(slots=True)
class Document:
    """What stands beside the events. `repaired` counts events that were not JSON, the first at byte `first_repair`.

    `members` are those asked for; numbers in them are text. `unreadable` counts events nested too deep to be read.
    """

    members: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    repaired: int = 0
    first_repair: int = 0
    unreadable: int = 0


def read_document(chunks: Iterator[bytes], wanted: frozenset[str], take: Callable[[object], None]) -> Document:
    """Read a whole trace; `take` gets its events one by one, with numbers as text and NaN as None.

    Raises ValueError, with the byte, for what is not the JSON of a trace.
    """
    return _Reading(chunks, wanted, take).document()


class _TooDeep(Exception):
    """An entry is nested deeper than the parser goes."""


class _Reading:
    def __init__(self, chunks: Iterator[bytes], wanted: frozenset[str], take: Callable[[object], None]) -> None:
        self._window = Window(chunks)
        self._wanted = wanted
        self._take = take
        self._found = Document()

    def document(self) -> Document:
        window = self._window
        window.fill(_LOOKAHEAD)
        if window.text.startswith("\ufeff"):
            window.pos = 1
        has_events = False
        self._expect("{")
        mark = "}" if self._peek() == "}" else ","
        while mark == ",":
            key = self._key()
            self._expect(":")
            if key == EVENTS:
                if has_events:
                    raise ValueError(f"has {EVENTS} twice, the second at byte {window.byte_at(window.pos)}")
                has_events = True
                self._events()
            else:
                self._member(key)
            mark = self._expect(",}")
        self._nothing_follows()
        if not has_events:
            raise ValueError(f"has no list {EVENTS} at its top")
        return self._found

    def _key(self) -> str:
        if self._peek() != '"':
            raise self._fault("expected the name of a member in double quotes")
        key = self._entry()
        return key if isinstance(key, str) else ""

    def _member(self, key: str) -> None:
        self._peek()
        try:
            value = self._entry()
        except _TooDeep:
            value = None
        if key in self._wanted:
            self._found.members[key] = value

    def _events(self) -> None:
        self._expect("[")
        if self._peek() == "]":
            self._window.pos += 1
            return
        mark = ","
        while mark == ",":
            self._peek()
            self._found.events += 1
            try:
                self._take(self._entry())
            except _TooDeep:
                self._found.unreadable += 1
            mark = self._expect(",]")

    def _peek(self) -> str:
        """The next character that is not a gap; `pos` is moved to it."""
        window = self._window
        while True:
            window.pos = _after_gap(window.text, window.pos)
            if window.pos < len(window.text):
                return window.text[window.pos]
            if window.ended:
                self._cut_off()
            window.fill(_LOOKAHEAD)

    def _expect(self, marks: str) -> str:
        mark = self._peek()
        if mark not in marks:
            raise self._fault(f"expected {' or '.join(marks)}")
        self._window.pos += 1
        return mark

    def _entry(self) -> Any:
        """The value that begins at `pos`, which is moved behind it."""
        window = self._window
        window.fill(_LOOKAHEAD)
        while True:
            text, pos = window.text, window.pos
            # An error costs as much as the text before it is long: where there was one, events are cut out first.
            end = _end_of(text, pos) if self._found.repaired and text[pos] == "{" else 0
            if end:
                text, pos = text[pos:end], 0
            try:
                value, length = _STRICT.raw_decode(text, pos)
            except json.JSONDecodeError as error:
                unsure = not end and (error.msg.startswith("Unterminated") or error.pos >= len(text) - _MARGIN)
                if unsure and self._extended():
                    continue
                return self._repair(window.pos - pos + error.pos, error.msg, unsure)
            except RecursionError:
                window.pos = end or self._end() or self._too_deep()
                raise _TooDeep from None
            end = end or length
            if end == len(window.text) and self._extended():
                continue  # a number may go on
            if window.broken and (broken := LONE.search(window.text, window.pos, end)):
                return self._repair(broken.start(), "not UTF-8", unsure=False)
            window.pos = end
            return value

    def _repair(self, place: int, what: str, unsure: bool) -> Any:
        window = self._window
        inside = place - window.pos
        end = self._end()
        place = window.pos + inside
        if unsure and (end == len(window.text) or (not end and window.text[window.pos] in '{["')):
            self._cut_off()
        entry = LONE.sub("\ufffd", window.text[window.pos : end])
        try:
            value, _ = _LENIENT.raw_decode(_REPAIRABLE.sub(_repaired, entry))
        except (json.JSONDecodeError, RecursionError):
            raise self._fault(what, place) from None
        self._found.first_repair = self._found.first_repair or window.byte_at(place)
        self._found.repaired += 1
        window.pos = end
        return value

    def _end(self) -> int:
        """Where the entry at `pos` ends, judged by brackets and quotes alone; 0 if that cannot be seen."""
        window = self._window
        while True:
            end = _end_of(window.text, window.pos)
            if end or len(window.text) - window.pos > _LONGEST_BROKEN or not self._extended():
                return end

    def _extended(self) -> bool:
        """Whether there was more to see of the entry at `pos`."""
        window = self._window
        if window.ended:
            return False
        length = len(window.text) - window.pos
        if length > MAX_ENTRY:
            at = window.byte_at(window.pos)
            raise ValueError(f"has an entry of more than {MAX_ENTRY} characters, from byte {at}")
        window.fill(2 * length + _LOOKAHEAD)
        return True

    def _nothing_follows(self) -> None:
        window = self._window
        while not window.ended or window.pos < len(window.text):
            window.fill(1)
            window.pos = _after_gap(window.text, window.pos)
            if window.pos < len(window.text):
                raise self._fault("more after the end of the JSON")

    def _too_deep(self) -> NoReturn:
        window = self._window
        if window.ended:
            self._cut_off()
        raise ValueError(f"has an entry nested too deep to be read, from byte {window.byte_at(window.pos)}")

    def _cut_off(self) -> NoReturn:
        size = self._window.byte_at(len(self._window.text))
        raise ValueError(f"ends early: its JSON is cut off after {size} bytes")

    def _fault(self, what: str, place: int | None = None) -> ValueError:
        window = self._window
        at = window.pos if place is None else place
        near = one_line(repr(window.text[at : at + 30]), 60)
        return ValueError(f"is not valid JSON at byte {window.byte_at(at)}: {one_line(what)}, near {near}")


def _after_gap(text: str, start: int) -> int:
    match = _GAP.match(text, start)
    assert match is not None  # it matches the empty text too
    return match.end()


def _end_of(text: str, start: int) -> int:
    if text[start] not in '{["':
        word = _WORD.match(text, start)
        return word.end() if word else 0
    depth = 0
    for match in _BRACKET.finditer(text, start):
        token = match[0]
        if token == '"':
            return 0
        depth += 1 if token in "{[" else -1 if token in "}]" else 0
        if depth == 0:
            return match.end()
    return 0


def _repaired(match: re.Match[str]) -> str:
    token = match[0]
    if not token.startswith('"'):
        return "null"
    return _ESCAPE.sub(lambda escape: escape[0] if len(escape[0]) > 1 else r"\\", token)
