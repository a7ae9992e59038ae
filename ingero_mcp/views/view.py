"""A public view, and the SQL for what has no column of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PRIVATE: Final = "ingero_private"
"""The schema of everything that is not public; the guard refuses any qualified name, so SQL cannot reach it."""


@dataclass(frozen=True, slots=True)
class View:
    """A public view; `columns` are (name, doc) pairs in order, `sql` is its definition over `events`."""

    name: str
    doc: str
    columns: tuple[tuple[str, str], ...]
    sql: str


def attribute(key: str) -> str:
    """SQL for an attribute that has no column, as text."""
    return f"""json_extract_string(attrs_json, '$."{key}"')"""


def whole(key: str, type_: str = "BIGINT") -> str:
    """SQL for an attribute that is a whole number; NULL where it is not one."""
    return f"TRY_CAST({attribute(key)} AS {type_})"
