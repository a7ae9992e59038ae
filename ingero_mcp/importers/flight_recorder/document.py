"""A file with one dump or several, as plain data. What kind of file it is follows from its bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ingero_mcp.importers.flight_recorder.plain import refuse_excess
from ingero_mcp.importers.flight_recorder.unpickle import MAX_INSTRUCTIONS, MAX_MADE, unpickle

MAX_BYTES: Final = 128 << 20

_HEAD_BYTES: Final = 1 << 16
_TAIL_BYTES: Final = 64
# A pickle begins with its protocol; the first two protocols, which did not, with a dictionary or a list.
_PICKLES: Final = (*(bytes([0x80, protocol]) for protocol in range(6)), b"(d", b"(l", b"}q", b"}(", b"]q", b"](")
_TEXTS: Final = (b"{", b"[")
# Every dump has one of these soon after its beginning.
_KEYS: Final = (b"pg_config", b"profiling_name", b"pg_status")
# Traces of the profiler tell about process groups too.
_NOT_OURS: Final = (b'"traceEvents"', b'"distributedInfo"', b'"schemaVersion"')
_OF_DUMP: Final = ("pg_config", "pg_status", "entries")


@dataclass(frozen=True, slots=True)
class Document:
    """The dumps of a file, each with the name it has there (None if it is the only one), and how many other values
    lie beside them."""

    dumps: tuple[tuple[str | None, dict[str, Any]], ...]
    others: int = 0


def mismatch_of(path: Path) -> str:
    """Why `path` cannot hold dumps, from its first bytes and its last ones; empty if it may."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _TAIL_BYTES))
        tail = file.read(_TAIL_BYTES)
    is_text = head.lstrip()[:1] in _TEXTS
    if not (is_text or head.startswith(_PICKLES)):
        return "neither a pickle nor JSON"
    if not any(key in head for key in _KEYS) or (is_text and any(key in head for key in _NOT_OURS)):
        return "JSON or a pickle of something else"
    if not tail.rstrip().endswith((b"}", b"]") if is_text else (b".",)):
        return "cut off: the end is missing"
    return ""


def load(data: bytes) -> Document:
    """Read the content of a file. Raises ValueError if it is broken, hostile, too large or holds no dump."""
    value = unpickle(data) if data.startswith(_PICKLES) else _from_json(data)
    # The first recorders wrote the bare list of their entries.
    if isinstance(value, list) and value and _is_entry(value[0]):
        value = {"entries": value}
    if not isinstance(value, dict):
        raise ValueError("holds no dump of a recorder")
    if _is_dump(value):
        return Document(((None, value),))
    dumps = tuple((name, inner) for name, inner in value.items() if _is_dump(inner))
    if not dumps:
        raise ValueError("holds no dump of a recorder")
    return Document(dumps, len(value) - len(dumps))


def _from_json(data: bytes) -> Any:
    # Counted before anything is built: two characters can be a dictionary, which takes 64 bytes.
    if data.count(b"{") + data.count(b"[") > MAX_MADE or data.count(b",") > MAX_INSTRUCTIONS:
        raise ValueError("JSON of too many values")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    refuse_excess(value)
    return value


def _is_dump(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    config, status, entries = (value.get(key) for key in _OF_DUMP)
    return isinstance(config, dict) or isinstance(status, dict) or isinstance(entries, list)


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and "profiling_name" in value
