"""Windows and durations: every accepted spelling, and errors that show them."""

from __future__ import annotations

import pytest

from ingero_mcp.errors import ConfigError
from ingero_mcp.windows import DURATION_FORMS, MAX_NS, WINDOW_FORMS, iso, parse, parse_duration

SECOND = 1_000_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
NOON = 1_796_040_000 * SECOND  # 2026-11-30T12:00:00Z


def bounds(text: str, anchor_ns: int = NOON) -> tuple[str, str]:
    window = parse(text, anchor_ns)
    return iso(window.start_ns), iso(window.end_ns)


@pytest.mark.parametrize("text", [None, "", "  ", "all", "ALL"])
def test_nothing_and_all_mean_the_whole_range(text: str | None) -> None:
    assert parse(text, NOON).is_all
    assert parse(text, NOON).text == "all"


@pytest.mark.parametrize(
    ("text", "length_ns"),
    [
        ("last 15m", 15 * MINUTE),
        ("5m", 5 * MINUTE),
        ("2d", 2 * DAY),
        ("1h30m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        ("last 15 minutes", 15 * MINUTE),
        ("past 2 hours", 2 * HOUR),
        ("1w", 7 * DAY),
        ("250ms", 250_000_000),
        ("10us", 10_000),
        ("7ns", 7),
    ],
)
def test_relative_windows_end_at_the_anchor(text: str, length_ns: int) -> None:
    window = parse(text, NOON)
    assert (window.start_ns, window.end_ns, window.text) == (NOON - length_ns, NOON, text)


@pytest.mark.parametrize(
    "text", ["11:30-11:35", "11:30 - 11:35", "11:30:00-11:35:00", "11:30-11:35 UTC", "11:30\u201311:35"]
)
def test_a_range_of_the_day_that_has_begun_is_of_that_day(text: str) -> None:
    assert bounds(text) == ("2026-11-30T11:30:00Z", "2026-11-30T11:35:00Z")


def test_a_range_that_contains_the_anchor_is_of_that_day() -> None:
    assert bounds("11:30-12:30") == ("2026-11-30T11:30:00Z", "2026-11-30T12:30:00Z")


def test_a_range_that_has_not_begun_is_of_the_day_before() -> None:
    assert bounds("14:30-14:35") == ("2026-11-29T14:30:00Z", "2026-11-29T14:35:00Z")


def test_a_range_across_midnight_ends_on_the_next_day() -> None:
    assert bounds("23:50-00:10") == ("2026-11-29T23:50:00Z", "2026-11-30T00:10:00Z")
    five_past = NOON - 12 * HOUR + 5 * MINUTE
    assert bounds("23:50-00:10", five_past) == ("2026-11-29T23:50:00Z", "2026-11-30T00:10:00Z")
    assert bounds("22:00-24:00") == ("2026-11-29T22:00:00Z", "2026-11-30T00:00:00Z")


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T14:30Z/2026-11-30T14:35Z",
        "2026-11-30T14:30:00Z/2026-11-30T14:35:00Z",
        "2026-11-30t14:30/2026-11-30t14:35",
        "2026-11-30 14:30 to 2026-11-30 14:35",
        "2026-11-30T15:30+01:00/2026-11-30T09:35-0500",
        "1796049000-1796049300",
        "1796049000/1796049300",
        "1796049000000-1796049300000",
        "1796049000000000-1796049300000000",
        "1796049000000000000-1796049300000000000",
    ],
)
def test_absolute_windows_do_not_depend_on_the_anchor(text: str) -> None:
    for anchor_ns in (0, NOON):
        assert bounds(text, anchor_ns) == ("2026-11-30T14:30:00Z", "2026-11-30T14:35:00Z")


def test_dates_alone_are_midnights() -> None:
    assert bounds("2026-11-29/2026-11-30") == ("2026-11-29T00:00:00Z", "2026-11-30T00:00:00Z")


def test_fractions_are_exact_to_the_nanosecond() -> None:
    window = parse("2026-11-30T12:00:00.123456789Z/2026-11-30T12:00:01Z", NOON)
    assert window.start_ns == NOON + 123_456_789


@pytest.mark.parametrize("text", ["last 15m", "14:30-14:35", "1796049000.5-1796049001"])
def test_the_absolute_spelling_of_a_window_is_the_same_window(text: str) -> None:
    window = parse(text, NOON + 7)
    again = parse(window.absolute, 0)
    assert (again.start_ns, again.end_ns) == (window.start_ns, window.end_ns)


def test_bounds_stay_within_what_a_timestamp_can_be() -> None:
    assert parse("999999999w", NOON).start_ns == 0
    assert parse("2026-11-30/9999-12-31", NOON).end_ns == MAX_NS


@pytest.mark.parametrize(
    "text",
    [
        "14:30",
        "5",
        "5 parsecs",
        "yesterday",
        "last",
        "-5m",
        "0s",
        "m5",
        "14:30-14:30",
        "25:00-26:00",
        "12:60-13:00",
        "2026-13-01/2026-12-02",
        "2026-02-30/2026-03-02",
        "2026-12-02/2026-12-01",
        "1796049300-1796049000",
        "2026-11-30T14:30Z",
        "\uff11\uff15m",
        "'; DROP TABLE events",
        "9" * 500,
        "x" * 500,
    ],
)
def test_what_is_no_window_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text, NOON)
    assert WINDOW_FORMS in str(error.value)
    assert len(str(error.value)) < 500
    assert "for example last 15m" in str(error.value)


@pytest.mark.parametrize(
    ("text", "ns"), [("2d", 2 * DAY), ("1h30m", 90 * MINUTE), ("500ms", 500_000_000), ("3 H", 3 * HOUR)]
)
def test_durations_are_nanoseconds(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "15", "0m", "-1h", "1h30", "h", "1y", "last 15m", "1" * 300])
def test_what_is_no_duration_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ConfigError, match="units ns us ms s m h d w") as error:
        parse_duration(text)
    assert DURATION_FORMS in str(error.value)
