"""What an agent's database must look like before a row of it is read. Its schema is input, like everything in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ingero_mcp.importers.ingero.sqlite import Reader
from ingero_mcp.importers.text import one_line

VERSIONS: Final = ("0.8", "0.9", "0.10")
"""What schema_info calls the schemas that are read."""
MAX_USER_VERSION: Final = 10

EVENTS: Final = "events"
NEEDED: Final = (EVENTS, "schema_info")
"""The tables that tell an agent's database from another program's."""

_GENERATED: Final = (2, 3)  # table_xinfo.hidden


def missing_tables(reader: Reader) -> list[str]:
    """Those of the two tables that a database of another program lacks."""
    known = {name for (name,) in reader.all(f"SELECT lower(name) FROM main.sqlite_master WHERE {_named(NEEDED)}")}
    return [name for name in NEEDED if name not in known]


def read_schema(reader: Reader, tables: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """The columns that each of `tables` has; those that are absent are left out.

    `tables` names the columns without which a table cannot be read. Raises ValueError for anything that is not
    simply a table, for a version that is not known, and for a damaged file.
    """
    found = _tables(reader, (*tables, "schema_info"))
    columns = {name: _columns(reader, name) for name in found}
    _require_version(reader, columns)
    for name in found:
        # Of these tables only: in another, a column may be code.
        problem = reader.all(f"PRAGMA main.quick_check({name})")
        if problem[:1] != [("ok",)]:
            said = str(problem[0][0]).removeprefix("*** in database main ***") if problem else "unreadable"
            raise ValueError(f"is damaged (table {name}: {one_line(said, 120)})")
        lacking = [column for column in tables.get(name, ()) if column not in columns[name]]
        if lacking:
            raise ValueError(f"has a table {name} without the columns {', '.join(lacking)}")
    return {name: columns[name] for name in tables if name in columns}


def _tables(reader: Reader, names: tuple[str, ...]) -> list[str]:
    # What an entry really is only its statement tells: SQLite parses that, whatever the entry claims to be.
    entries = reader.all(
        f"SELECT lower(name), type, rootpage, substr(sql, 1, 13) FROM main.sqlite_master WHERE {_named(names)} "
        "AND type != 'index' AND type != 'trigger'"
    )
    found: list[str] = []
    for name, kind, root, statement in entries:
        if kind == "view":
            raise ValueError(f"is not what an agent writes: {name} is a view, not a table")
        if kind != "table" or not isinstance(root, int) or root < 2 or statement != "CREATE TABLE " or name in found:
            raise ValueError(f"is not what an agent writes: {name} is not an ordinary table")
        found.append(name)
    for name in NEEDED:
        if name not in found:
            raise ValueError(f"has no table {name}")
    return found


def _columns(reader: Reader, table: str) -> frozenset[str]:
    names = set()
    for _, name, _, _, _, _, hidden in reader.all(f"PRAGMA main.table_xinfo({table})"):
        if hidden in _GENERATED:
            raise ValueError(f"is not what an agent writes: {table}.{one_line(name, 60)} is a generated column")
        names.add(str(name).lower())
    return frozenset(names)


def _require_version(reader: Reader, columns: Mapping[str, frozenset[str]]) -> None:
    [(user_version,)] = reader.all("PRAGMA main.user_version")
    if user_version > MAX_USER_VERSION:
        raise ValueError(
            f"was written by a newer agent (user_version {user_version}; this program knows up to {MAX_USER_VERSION}); "
            "upgrade ingero"
        )
    if not {"key", "value"} <= columns["schema_info"]:
        raise ValueError("has a table schema_info without the columns key, value")
    rows = reader.all("SELECT substr(value, 1, 40) FROM main.schema_info NOT INDEXED WHERE key = 'version' LIMIT 2")
    version = rows[0][0] if len(rows) == 1 else "missing"
    if version not in VERSIONS:
        raise ValueError(f"has the schema version {one_line(version, 40)}; known are {', '.join(VERSIONS)}")


def _named(names: tuple[str, ...]) -> str:
    return f"lower(name) IN ({', '.join(repr(name) for name in names)})"
