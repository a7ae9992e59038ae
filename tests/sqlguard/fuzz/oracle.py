"""What may not happen when a text that passed is run, and how it is seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.sqlguard.fuzz.bait import OF_TYPE, OUT, Bait
from tests.sqlguard.fuzz.layers import Layers
from tests.sqlguard.fuzz.watch import CHANGED, TOUCHED, Watch
from tests.sqlguard.fuzz.world import Answer, World

MAX_GROWTH_KB = 1 << 20
"""How much more memory than before the process may hold while one statement runs: four times the engine's limit."""
_REPEATS = 20
"""So that a coin thrown by the statement, which fell differently for the twins, is known for one."""

_TABLES = 'SELECT DISTINCT format(\'"{}"."{}"\', schema_name, table_name) FROM duckdb_tables() WHERE NOT internal'
_SUM = "SELECT '{0}', count(*), bit_xor(hash(t)) FROM {0} AS t"
_DATABASES = "SELECT list(database_name ORDER BY ALL) FROM duckdb_databases()"
_SETTINGS = "SELECT name, value FROM duckdb_settings()"


class Kind(StrEnum):
    """Of what went wrong."""

    LEAK = "leak"
    TYPE = "type"
    """A leak, too: of the labels of a private type. Kept apart, because only one of the opinions knows types."""
    FILE = "file"
    CHANGE = "change"
    DATABASE = "database"
    """Its file was written to; a checkpoint does that without a change, and in a READ ONLY transaction."""
    SETTINGS = "settings"
    """Of the instance: a setting, or a database that was attached."""
    TRANSACTION = "transaction"
    MEMORY = "memory"
    FAULT = "fault"
    DEATH = "death"
    STUCK = "stuck"


SPOILING = frozenset(
    {Kind.CHANGE, Kind.DATABASE, Kind.SETTINGS, Kind.FILE, Kind.MEMORY, Kind.DEATH, Kind.STUCK, Kind.FAULT}
)
"""After these the bait or the process is not what it was, and both are made anew."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that a statement must not do."""

    kind: Kind
    detail: str


@dataclass(frozen=True, slots=True)
class Examined:
    """What became of a statement: whether it passed the guard, whether it gave rows, and all that is wrong with it."""

    passed: bool
    ran: bool = False
    faults: tuple[Fault, ...] = ()


class Oracle:
    """Runs statements in both worlds and says what was wrong with each."""

    def __init__(self, bait: Bait, on: Layers) -> None:
        self._shown = re.compile(rf"{bait.marker}(?:-\d+({OF_TYPE}))?", re.IGNORECASE)
        self._twins = [World(path, on) for path in bait.twins]
        self._before = self._fingerprint()
        folders = {bait.folder: TOUCHED, bait.folder / OUT: TOUCHED}
        self._watch = Watch(folders | {path.parent: CHANGED for path in bait.twins})
        if not self._sees_reading(bait.folder):
            raise OSError("the kernel does not tell of files that are read; the oracle would be blind")

    def examine(self, sql: str) -> Examined:
        """Run `sql` if it passes."""
        held_kb = _reset_peak_kb()
        first = self._twins[0].ask(sql)
        if first is None:
            return Examined(False, faults=self._touched())
        second = self._twins[1].ask(sql)
        faults = [*self._leaks(sql, first, second), *self._touched()]
        faults += [Fault(Kind.TRANSACTION, fault) for fault in first.faults]
        grown_kb = _peak_kb() - held_kb
        if grown_kb > MAX_GROWTH_KB:
            faults.append(Fault(Kind.MEMORY, f"{grown_kb >> 10} MB more"))
        faults += self._changes()
        return Examined(True, not first.failed, tuple(faults))

    def _leaks(self, sql: str, first: Answer, second: Answer | None) -> list[Fault]:
        places = list(self._shown.finditer(first.shown))
        if places:
            is_type = all(place[1] for place in places) or "Type with name" in first.shown
            kind = Kind.TYPE if is_type else Kind.LEAK
            return [Fault(kind, first.shown[max(0, places[0].start() - 80) : places[0].end() + 20])]
        if first.failed and second and second.failed:
            return []  # their words differ, too, for what is no secret: bytes used, milliseconds
        if first.timed_out or (second and second.timed_out):
            return []
        # Answers that change from one time to the next (now, random, samples) tell nothing about the secret.
        if first != second and all(
            self._steady(world, sql, answer) for world, answer in zip(self._twins, (first, second), strict=True)
        ):
            return [Fault(Kind.LEAK, f"the twins differ: {first.shown[:80]} | {second.shown[:80] if second else None}")]
        return []

    @staticmethod
    def _steady(world: World, sql: str, answer: Answer | None) -> bool:
        return all(world.ask(sql) == answer for _ in range(_REPEATS))

    def _touched(self) -> tuple[Fault, ...]:
        return tuple(
            Fault(Kind.DATABASE if ".duckdb" in touched else Kind.FILE, touched)
            for touched in self._watch.touched()
            if ".duckdb.tmp" not in touched  # what a sort spills there is the engine's own
        )

    def _sees_reading(self, folder: Path) -> bool:
        self._watch.touched()
        for path in folder.iterdir():
            if path.is_file():
                path.read_bytes()
        return any(touched.startswith(("read", "opened")) for touched in self._watch.touched())

    def _changes(self) -> list[Fault]:
        before, self._before = self._before, self._fingerprint()
        return [
            Fault(kind, name)
            for kind, name in sorted(before.keys() | self._before.keys())
            if before.get((kind, name)) != self._before.get((kind, name))
        ]

    def _fingerprint(self) -> dict[tuple[Kind, str], object]:
        """Every private and public table by its rows, what is attached, and the settings."""
        with self._twins[0].cursor() as cursor:
            tables = cursor.execute(_TABLES).fetchall()
            sums = " UNION ALL ".join(_SUM.format(name) for (name,) in tables)
            found: dict[tuple[Kind, str], object] = {
                (Kind.CHANGE, name): rest for name, *rest in cursor.execute(sums).fetchall()
            }
            found[Kind.SETTINGS, "databases"] = cursor.execute(_DATABASES).fetchone()
            return found | {(Kind.SETTINGS, name): value for name, value in cursor.execute(_SETTINGS).fetchall()}


def _status_kb(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise OSError(f"no {field}")


def _peak_kb() -> int:
    return _status_kb("VmHWM")


def _reset_peak_kb() -> int:
    # Makes the kernel count the highest from now on; what is held now is given back.
    Path("/proc/self/clear_refs").write_text("5")
    return _status_kb("VmRSS")
