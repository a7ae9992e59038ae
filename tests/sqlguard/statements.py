"""The golden files: allow.sql and deny.sql, one statement per paragraph."""

from __future__ import annotations

import re
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "sqlguard"
_ESCAPE = re.compile(r"\\u\{([0-9A-F]+)\}")


def _paragraphs(name: str) -> list[list[str]]:
    text = (GOLDEN / name).read_text()
    return [paragraph.strip("\n").split("\n") for paragraph in text.split("\n\n") if paragraph.strip("\n")]


def allowed() -> list[str]:
    """The statements of allow.sql."""
    return ["\n".join(lines) for lines in _paragraphs("allow.sql") if not lines[0].startswith("--")]


def denied() -> list[tuple[str, frozenset[str]]]:
    """The statements of deny.sql with the codes expected for each."""
    return [
        (_ESCAPE.sub(lambda found: chr(int(found[1], 16)), "\n".join(lines[1:])), frozenset(lines[0][3:].split()))
        for lines in _paragraphs("deny.sql")
        if lines[0].startswith("--:")
    ]
