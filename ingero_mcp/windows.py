"""Time windows and durations as people and agents write them; the only parser of either.

A window is half-open, `start_ns <= t < end_ns`, in Unix nanoseconds. Every spelling that has no zone is UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from ingero_mcp.errors import ConfigError

WINDOW_FORMS = (
    "14:30-14:35 (UTC), 2026-11-30T14:30Z/2026-11-30T14:35Z, last 15m, 2d, 1h30m, "
    "1764513000-1764513300 (epoch seconds or nanoseconds), all"
)
"""The accepted forms of a window, for error messages and descriptions."""

DURATION_FORMS = "500ms, 30s, 15m, 1h30m, 2d, 1w (units ns us ms s m h d w)"
"""The accepted forms of a duration, for error messages and descriptions."""

MIN_NS = -(2**63)
MAX_NS = 2**63 - 1

_SECOND = 1_000_000_000
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3600 * _SECOND, 86_400 * _SECOND

_UNITS = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000,
    "s": _SECOND, "sec": _SECOND, "secs": _SECOND, "second": _SECOND, "seconds": _SECOND,
    "m": _MINUTE, "min": _MINUTE, "mins": _MINUTE, "minute": _MINUTE, "minutes": _MINUTE,
    "h": _HOUR, "hr": _HOUR, "hrs": _HOUR, "hour": _HOUR, "hours": _HOUR,
    "d": _DAY, "day": _DAY, "days": _DAY,
    "w": 7 * _DAY, "week": 7 * _DAY, "weeks": 7 * _DAY,
}  # fmt: skip

_NUMBER = r"[0-9]{1,19}(?:\.[0-9]{1,9})?"
_PART = re.compile(rf"({_NUMBER})\s*([a-zµμ]+)\s*")
_LAST = re.compile(r"(?:the\s+)?(?:last|past)\s+")
_CLOCK = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
_CLOCK_PAIR = re.compile(rf"{_CLOCK}\s*z?\s*[-/]\s*{_CLOCK}\s*(?:z|utc)?")
_EPOCH_PAIR = re.compile(rf"({_NUMBER})\s*[-/]\s*({_NUMBER})")
_INSTANT = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[t ]{_CLOCK}\s*(z|[+-][0-9]{{2}}:?[0-9]{{2}})?)?")
_EPOCH_UNITS = ((11, _SECOND), (14, 1_000_000), (17, 1_000), (19, 1))  # most digits a number of that unit has
_LONGEST = 200
_EPOCH_DAY = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open range of time; `text` is how it was asked for (`all` where nothing was)."""

    start_ns: int
    end_ns: int
    text: str

    @property
    def is_all(self) -> bool:
        """Whether nothing bounds it, so that it stands for the whole range of the data."""
        return self.start_ns == MIN_NS and self.end_ns == MAX_NS

    @property
    def absolute(self) -> str:
        """The same window in a spelling that means the same at any later time."""
        return f"{iso(self.start_ns)}/{iso(self.end_ns)}"


def parse(text: str | None, anchor_ns: int) -> Window:
    """Read a window; None, an empty text and `all` mean the whole range of the data.

    `anchor_ns` is what relative windows end at and HH:MM ranges are resolved against: now on a live server,
    just after the newest event of a file.

    >>> parse("last 15m", 1_764_513_900_000_000_000).start_ns
    1764513000000000000
    """
    asked = " ".join((text or "").split())
    lower = asked.lower().replace("\u2013", "-")  # a typeset dash between two times
    if lower in ("", "all"):
        return Window(MIN_NS, MAX_NS, "all")
    if len(asked) > _LONGEST:
        raise _refused(asked[:40] + "...", "it is too long")
    if match := _CLOCK_PAIR.fullmatch(lower):
        start, end = _clock_range(asked, match, anchor_ns)
    elif match := _EPOCH_PAIR.fullmatch(lower):
        start, end = _epoch_ns(match[1]), _epoch_ns(match[2])
    elif bounds := _instants(asked, lower):
        start, end = bounds
    elif (length := _duration(_LAST.sub("", lower, count=1))) is not None:
        start, end = anchor_ns - length, anchor_ns
    else:
        raise _refused(asked, "it is not a window")
    start, end = max(start, 0), min(end, MAX_NS)
    if start >= end:
        raise _refused(asked, "it ends before it begins or is empty")
    return Window(start, end, asked)


def parse_duration(text: str) -> int:
    """Read a length of time such as `2d` or `1h30m` and return nanoseconds.

    >>> parse_duration("1h30m") // 60_000_000_000
    90
    """
    length = _duration(" ".join(text.lower().split())) if len(text) <= _LONGEST else None
    if length is None:
        raise ConfigError(f"duration {_quoted(text)} is not understood; accepted are {DURATION_FORMS}, for example 15m")
    return length


def iso(ns: int) -> str:
    """Unix nanoseconds as ISO 8601 in UTC with as many digits as needed: `2026-11-30T14:30:00Z`."""
    seconds, rest = divmod(ns, _SECOND)
    text = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()
    digits = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{text}{digits}Z"


def _duration(text: str) -> int | None:
    total, end = Decimal(0), 0
    for part in _PART.finditer(text):
        unit = _UNITS.get(part[2])
        if part.start() != end or unit is None:
            return None
        total, end = total + Decimal(part[1]) * unit, part.end()
    if end == 0 or end != len(text) or total < 1:
        return None
    return int(min(total, Decimal(MAX_NS)))


def _clock_range(asked: str, match: re.Match[str], anchor_ns: int) -> tuple[int, int]:
    # The day of the anchor if the range has begun by then, else the day before: its most recent occurrence.
    first, last = _time_of_day(asked, match.groups()[:4]), _time_of_day(asked, match.groups()[4:])
    if last < first:
        last += _DAY
    midnight = anchor_ns - anchor_ns % _DAY
    if midnight + first > anchor_ns:
        midnight -= _DAY
    return midnight + first, midnight + last


def _time_of_day(asked: str, groups: tuple[str | None, ...]) -> int:
    hour, minute, second = (int(group or 0) for group in groups[:3])
    if minute > 59 or second > 59 or (hour, minute, second) > (24, 0, 0):
        raise _refused(asked, "there is no such time of day")
    return hour * _HOUR + minute * _MINUTE + second * _SECOND + int((groups[3] or "").ljust(9, "0"))


def _epoch_ns(number: str) -> int:
    # Seconds, milliseconds, microseconds and nanoseconds of our time differ in their number of digits.
    digits = len(number.partition(".")[0].lstrip("0"))
    unit = next(unit for most, unit in _EPOCH_UNITS if digits <= most)
    return int(Decimal(number) * unit)


def _instants(asked: str, lower: str) -> tuple[int, int] | None:
    pieces = re.split(r"\s*/\s*|\s+to\s+|\s+-\s+", lower)
    matches = [_INSTANT.fullmatch(piece) for piece in pieces]
    if len(matches) != 2 or not matches[0] or not matches[1]:
        return None
    return _instant(asked, matches[0]), _instant(asked, matches[1])


def _instant(asked: str, match: re.Match[str]) -> int:
    try:
        day = date.fromisoformat(match[1])
    except ValueError:
        raise _refused(asked, "there is no such date") from None
    zone = (match[6] or "z").replace(":", "")
    offset = 0
    if zone != "z":
        offset = int(zone[1:3]) * _HOUR + int(zone[3:]) * _MINUTE
        offset = -offset if zone[0] == "-" else offset
    time = _time_of_day(asked, match.groups()[1:5]) if match[2] else 0
    return (day.toordinal() - _EPOCH_DAY) * _DAY + time - offset


def _refused(asked: str, why: str) -> ConfigError:
    return ConfigError(f"window {_quoted(asked)}: {why}; accepted are {WINDOW_FORMS}; for example last 15m")


def _quoted(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")
