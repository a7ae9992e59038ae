"""What an event says besides its columns: `attrs_json`, fit for a trace that is valid whatever was recorded."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ingero_mcp import semconv
from ingero_mcp.cells import MAX_EXACT

# Of these some are kept elsewhere, and the others are the same for all that a node sends.
_NO_LABELS: Final = (
    "otlp.", "ingero.", "nccl.", "service.", "host.", "process.", "telemetry.", "k8s.", semconv.CAUSAL_CHAIN_ID,
)  # fmt: skip
_MOST_LABELS: Final = 4
_LONGEST_LABEL: Final = 40
_LONGEST_KEPT: Final = 2_000
encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""Strict JSON, in ASCII: recorded text cannot end its field, nor be taken for anything but text."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of an event: as JSON text, and those that decide where and how it is drawn.

    `labels` are the short texts among them, which tell the series of one metric apart.
    """

    text: str = ""
    labels: str = ""
    stream: int | str | None = None
    is_attached: bool = False
    gap_start_ns: int | None = None
    gap_end_ns: int | None = None
    lost_events: int | None = None


_NONE: Final = Attributes()


def attributes_of(attrs_json: str | None) -> Attributes:
    """Read `attrs_json`. What is no JSON object is kept as text."""
    if attrs_json is None or attrs_json == "{}":
        return _NONE
    return _kept(attrs_json) if len(attrs_json) <= _LONGEST_KEPT else _read(attrs_json)


def _read(attrs_json: str) -> Attributes:
    try:
        given = json.loads(attrs_json, parse_int=_whole, parse_float=_number, parse_constant=str)
        text = encode(given)
    except (ValueError, RecursionError):
        return Attributes(encode(attrs_json))
    if not isinstance(given, dict):
        return Attributes(text)
    stream = given.get(semconv.CUDA_STREAM)
    return Attributes(
        text,
        _labels(given),
        stream if isinstance(stream, int | str) else None,
        given.get(semconv.SEQ_ORIGIN) == "attach",
        _int(given.get(semconv.GAP_START_NS)),
        _int(given.get(semconv.GAP_END_NS)),
        _int(given.get(semconv.LOST_EVENTS)),
    )


# Most events of a job differ in their columns only.
_kept = lru_cache(maxsize=8_192)(_read)


def _whole(digits: str) -> int | str:
    """Beyond 2^53 as text: a viewer's numbers are doubles."""
    number = int(digits)
    return number if -MAX_EXACT <= number <= MAX_EXACT else digits


def _number(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _int(value: Any) -> int | None:
    try:
        return int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
    except ValueError:
        return None


def _labels(given: dict[str, Any]) -> str:
    labels = [
        f"{key}={value}"
        for key, value in sorted(given.items())
        if isinstance(value, str) and not key.startswith(_NO_LABELS) and len(key) + len(value) < _LONGEST_LABEL
    ]
    return " ".join(labels[:_MOST_LABELS])
