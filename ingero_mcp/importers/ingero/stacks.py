"""JSON that an agent keeps as text: lists, labels, and the frames of call stacks. It is input: valid or not."""

from __future__ import annotations

import json
from typing import Any


def json_value(text: str | None) -> Any:
    """A JSON object or array; any other text, and JSON that could not be written again, stays the text it is."""
    if text is None or text[:1] not in ("[", "{"):
        return text
    try:
        value = json.loads(text, parse_constant=_refuse)
        # A half of a surrogate pair can be escaped in JSON and is no character.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def frame_texts(text: str | None) -> Any:
    """Frames as strings, innermost first: `symbol (file:line)`, and the address where there is no symbol."""
    frames = json_value(text)
    if not isinstance(frames, list):
        return frames
    return [_frame(frame) for frame in frames]


def _frame(frame: Any) -> Any:
    if not isinstance(frame, dict):
        return frame
    if frame.get("pfn") or frame.get("pf"):
        name, file, line = frame.get("pfn", "?"), frame.get("pf", ""), frame.get("pl")
    else:
        name, file, line = frame.get("s") or frame.get("i", "?"), frame.get("f", ""), frame.get("l")
    place = f"{file}:{line}" if line and file else file
    return f"{name} ({place})" if place else f"{name}"


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
