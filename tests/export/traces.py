"""A Chrome trace as a reader that trusts nothing sees it: the shape of every event, and what has to hold among them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from jsonschema import Draft202012Validator

from ingero_mcp.export.perfetto import COLOURS

Event = dict[str, Any]

_ID = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
_TIME = {"type": "number", "minimum": 0}
_PLACED = {"ts": _TIME, "pid": _ID, "tid": _ID}


def _event(phase: str, properties: Event, optional: tuple[str, ...] = ()) -> Event:
    required = ["name", "ph", *(name for name in properties if name not in optional)]
    known = {"name": {"type": "string", "minLength": 1}, "ph": {"const": phase}, **properties}
    return {"type": "object", "required": required, "properties": known, "additionalProperties": False}


_FLOW = {**_PLACED, "id": _ID, "cat": {"const": "collective"}}
_META = {"ts": {"const": 0}, "pid": _ID, "tid": _ID, "args": {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "sort_index": {"type": "integer", "minimum": 0}},
    "additionalProperties": False,
    "minProperties": 1,
}}  # fmt: skip
_SHOWN = {
    "cat": {"type": "string", "minLength": 1},
    "args": {"type": "object"},
    "cname": {"enum": [*COLOURS.values(), "grey"]},
}
SCHEMA: Event = {
    "type": "object",
    "required": ["traceEvents", "otherData"],
    "additionalProperties": False,
    "properties": {
        "otherData": {
            "type": "object",
            "required": ["base_time_ns", "base_time", "producer"],
            "properties": {"base_time_ns": {"type": "string", "pattern": "^-?[0-9]+$"}},
        },
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    _event("M", _META, ("tid",)),
                    _event("X", {**_PLACED, "dur": _TIME, **_SHOWN}, ("cname",)),
                    _event("i", {**_PLACED, "s": {"const": "t"}, **_SHOWN}, ("cname",)),
                    _event("C", {"ts": _TIME, "pid": _ID, "args": {
                        "type": "object", "minProperties": 1, "additionalProperties": {"type": "number"}}}),
                    _event("s", _FLOW),
                    _event("f", {**_FLOW, "bp": {"const": "e"}}),
                ]
            },
        },
    },
}  # fmt: skip


def _refused(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


def read(text: str | bytes) -> Event:
    """The trace as strict JSON; times as decimals, so that nothing is rounded."""
    trace: Event = json.loads(text, parse_constant=_refused, parse_float=Decimal)
    return trace


def of(trace: Event, *phases: str) -> list[Event]:
    return [event for event in trace["traceEvents"] if event["ph"] in phases]


def ns(microseconds: Decimal | int) -> int:
    exact = Decimal(microseconds) * 1000
    assert exact == exact.to_integral_value(), f"{microseconds} µs is no whole number of nanoseconds"
    return int(exact)


def assert_sound(trace: Event) -> None:
    """All that a viewer relies on."""
    validator = Draft202012Validator(SCHEMA)
    errors = [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(trace)]
    assert errors == []
    _assert_named(trace)
    _assert_monotonic(trace)
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in of(trace, "X", "i"):
        tracks[event["pid"], event["tid"]].append(event)
    for events in tracks.values():
        _assert_nested(events)
    _assert_flows(trace, tracks)


def _assert_named(trace: Event) -> None:
    """Every process and thread has one name and one place in the order, said before it is used."""
    named: Counter[tuple[str, int, int | None]] = Counter()
    for event in trace["traceEvents"]:
        where = event["pid"], event.get("tid")
        if event["ph"] == "M":
            named[event["name"], *where] += 1
            continue
        assert named["process_name", where[0], None] == named["process_sort_index", where[0], None] == 1
        if event["ph"] != "C":
            assert named["thread_name", *where] == named["thread_sort_index", *where] == 1
    assert set(named.values()) <= {1}
    threads = [event["tid"] for event in of(trace, "M") if event["name"] == "thread_name"]
    assert len(threads) == len(set(threads)), "a number of a thread is used in two processes"


def _assert_monotonic(trace: Event) -> None:
    last: dict[tuple[Any, ...], Decimal] = {}
    for event in of(trace, "X", "i", "C", "s", "f"):
        track = (event["pid"], event["name"]) if event["ph"] == "C" else (event["pid"], event["tid"])
        assert event["ts"] >= last.get(track, 0), event
        last[track] = event["ts"]


def _assert_nested(events: Iterable[Event]) -> None:
    """A span ends no later than the one around it."""
    open_until: list[int] = []
    for event in events:
        start = ns(event["ts"])
        end = start + ns(event.get("dur", 0))
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], event
        open_until.append(end)


def _assert_flows(trace: Event, tracks: dict[tuple[int, int], list[Event]]) -> None:
    """Every start has one finish, not before it, and both are inside a span of their track."""
    starts = {event["id"]: event for event in of(trace, "s")}
    finishes = {event["id"]: event for event in of(trace, "f")}
    assert len(of(trace, "s", "f")) == len(starts) + len(finishes)
    assert starts.keys() == finishes.keys()
    for number, start in starts.items():
        assert start["ts"] <= finishes[number]["ts"]
        for end in (start, finishes[number]):
            spans = tracks[end["pid"], end["tid"]]
            assert any(span["ts"] <= end["ts"] < span["ts"] + span.get("dur", 0) for span in spans), end
